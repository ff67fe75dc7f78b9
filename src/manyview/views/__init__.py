"""How one sample becomes many views."""

from manyview.views.augment import Augment, Plan
from manyview.views.gallery import gallery
from manyview.views.recipes import RECIPES, Recipe, recipe

__all__ = ["RECIPES", "Augment", "Plan", "Recipe", "gallery", "recipe"]
