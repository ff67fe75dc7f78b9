"""manyview: image representations learnt by contrasting many views and many positives."""
