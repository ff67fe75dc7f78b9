"""For each command one that works as it stands, in this order. Messages about missing words show it."""

EXAMPLES = {
    "pretrain": "manyview pretrain jcl --data scenes --out runs/jcl",
    "resume": "manyview resume runs/jcl",
    "evaluate": "manyview evaluate knn runs/jcl --data scenes",
    "embed": "manyview embed runs/jcl --data scenes --out features.npz",
    "export": "manyview export runs/jcl --out encoder.safetensors",
    "report": "manyview report runs/jcl",
    "diagnose": "manyview diagnose runs/jcl",
    "views": "manyview views --data scenes --method jcl",
    "pack": "manyview pack --data photos/ --image-size 96 --out photos.safetensors",
    "reproduce": "manyview reproduce jcl-fig2a --data scenes",
}
