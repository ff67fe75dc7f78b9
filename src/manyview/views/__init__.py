"""How one sample becomes many views."""

from manyview.views.augment import Augment, Group
from manyview.views.gallery import gallery, picture, png
from manyview.views.plan import Plan
from manyview.views.recipes import RECIPES, Recipe, recipe

__all__ = ["RECIPES", "Augment", "Group", "Plan", "Recipe", "gallery", "picture", "png", "recipe"]
