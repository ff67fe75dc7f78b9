"""Contrastive objectives as functions of two similarity matrices.

    positives  (N, M)   s[i, m] = q_i · k_{i,m}    each query with its own positives
    negatives  (N, K)   s[i, j] = q_i · n_j        each query with its negatives; an excluded pair is -inf

An objective never knows where its negatives come from. Everything is computed in at least float32. Counts, means and
entropies run over the finite entries of a row; a query without negatives is not repelled.
"""

from manyview.objectives.cacr import (
    attraction,
    cacr,
    conditional_entropy,
    max_conditional_entropy,
    mutual_information,
    repulsion,
)
from manyview.objectives.info_nce import info_nce, jcl
from manyview.objectives.multiview import directions, multiview, mutual_information_bound, view_pairs, within_batch
from manyview.objectives.nce import nce, normaliser
from manyview.objectives.pairs import cmc_full_graph, mv_dhel, mv_infonce, nt_xent, pvc
from manyview.objectives.patches import patch_contrast, patch_scores
from manyview.objectives.rivals import align_uniform, debiased, hard_negative
from manyview.objectives.rows import log_sum_exp, similarity, soft_mean

__all__ = [
    "align_uniform",
    "attraction",
    "cacr",
    "cmc_full_graph",
    "conditional_entropy",
    "debiased",
    "directions",
    "hard_negative",
    "info_nce",
    "jcl",
    "log_sum_exp",
    "max_conditional_entropy",
    "multiview",
    "mutual_information",
    "mutual_information_bound",
    "mv_dhel",
    "mv_infonce",
    "nce",
    "normaliser",
    "nt_xent",
    "patch_contrast",
    "patch_scores",
    "pvc",
    "repulsion",
    "similarity",
    "soft_mean",
    "view_pairs",
    "within_batch",
]
