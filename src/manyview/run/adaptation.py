"""What a run does otherwise when it starts from trained weights (--init)."""

from collections.abc import Collection, Mapping

from manyview import distributed
from manyview.config import AnyConfig
from manyview.data import Source
from manyview.encoders import Card, Weights, open_weights
from manyview.encoders.backbones import is_resnet, takes_any_size
from manyview.encoders.weights import TIMM
from manyview.errors import naming
from manyview.run import pace
from manyview.run.choices import Choices

OF_INIT = "that of --init"
BACKBONE_SHARE = 0.3  # of the learning rate: what is learnt already should change more slowly than what is random
HEAD_SHARE = 0.05  # of the run, in which the head learns alone


def given_weights(config: AnyConfig, given: Collection[str], usual: str) -> Weights | None:
    """Those of --init. `usual` is the network that is meant where neither a flag nor the weights say which."""
    if config.encoder.init is None:
        return None
    asks_timm = config.encoder.init.partition(":")[0] == TIMM
    backbone = config.encoder.backbone if "backbone" in given else usual if asks_timm else None
    with distributed.first_on_each_machine(), naming("--init"):  # the first may have to fetch them
        return open_weights(config.encoder.init, backbone)


def adapted(choices: Choices, card: Card, source: Source, views: int) -> tuple[AnyConfig, Mapping[str, str]]:
    """A preset that knows nothing of weights, adapted to them."""
    choose_network(choices, card, small=False)
    choose_training(choices, source, views)
    return choices.config, choices.reasons


def choose_network(choices: Choices, card: Card, *, small: bool) -> None:
    """The network that the weights belong to. `small`: the images have few pixels, of which a ResNet leaves one."""
    choices.choose("encoder", "backbone", card.backbone, OF_INIT)
    if small and card.stem == "standard" and is_resnet(card.backbone):
        choices.choose("encoder", "stem", "small", "sees small images as if they were four times as large")
    else:
        choices.choose("encoder", "stem", card.stem, OF_INIT)
    norm = choices.config.encoder.norm
    choices.choose("encoder", "norm", norm if card.norm == "batch" and norm == "sync" else card.norm, OF_INIT)
    if not takes_any_size(card.backbone):
        choices.choose("views", "image_size", card.image_size, OF_INIT)
    if card.split is None and card.in_channels == choices.asked.data.channels:
        choices.choose("views", "channel_mean", card.mean, OF_INIT)
        choices.choose("views", "channel_std", card.std, OF_INIT)


def choose_training(choices: Choices, source: Source, views: int) -> None:
    """How the weights are kept while a head that knows nothing of them is trained on `views` per sample."""
    per_epoch = pace.length(choices.config, len(source))[1]
    steps = choices.asked.optim.max_steps or choices.config.optim.epochs * per_epoch
    lr = (choices.asked if "lr" in choices.given else choices.config).optim.lr
    choices.choose("optim", "backbone_lr", lr * BACKBONE_SHARE, f"{BACKBONE_SHARE:g} × --lr: it is trained already")
    head = head_epochs(steps, per_epoch)
    choices.choose("optim", "warmup_head_epochs", head, f"{HEAD_SHARE:.0%} of the run: the head is new")
    if source.labels is not None:
        every = pace.knn_every(steps, per_epoch, choices.config.optim.batch_size * views, len(source))
        choices.choose("run", "knn_every", every, "epochs; tells whether the start is still beaten")


def head_epochs(steps: int, per_epoch: int) -> float:
    """Epochs in which the head learns alone, as one writes them."""
    return float(f"{HEAD_SHARE * steps / per_epoch:.2g}")
