"""How one sample becomes many views."""

from manyview.views.augment import Augment, Group
from manyview.views.gallery import picture, png
from manyview.views.plan import Plan
from manyview.views.policies import POLICIES, Policy, policy

__all__ = ["POLICIES", "Augment", "Group", "Plan", "Policy", "picture", "png", "policy"]
