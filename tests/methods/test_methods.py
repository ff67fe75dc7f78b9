"""Each method's step against its algorithm written out, and the state that it keeps between steps."""

from dataclasses import replace

import pytest
import torch
from stepping import QUEUE, N, batch, make, moved, value
from torch import Tensor

from manyview.errors import UserError
from manyview.methods import described, find
from manyview.methods.base import ViewBatch
from manyview.methods.jcl import JCL, JCLConfig
from manyview.methods.moco_v1 import MoCoV1, MoCoV1Config
from manyview.methods.moco_v2 import MoCoV2, MoCoV2Config
from manyview.methods.simclr import SimCLR, SimCLRConfig
from manyview.methods.vanilla import Vanilla, VanillaConfig
from manyview.objectives import nt_xent


def algorithm_1(method: JCL, b: ViewBatch, lam: float) -> Tensor:
    """JCL's algorithm box, sample by sample, with the explicit covariance."""
    tau, losses = method.config.temperature, []
    for i in range(N):
        q = method.encoder(b.images[0, i : i + 1])[0]
        k = torch.cat([method.keys.encoder(b.images[1 + m, i : i + 1]) for m in range(method.config.keys)])
        mu = k.mean(0)
        sigma = (k - mu).T @ (k - mu) / len(k)
        positive = torch.exp(q @ mu / tau + lam / (2 * tau**2) * q @ sigma @ q)
        losses.append(torch.log(positive + torch.exp(method.queue.keys @ q / tau).sum()) - q @ mu / tau)
    return torch.stack(losses).mean()


def test_a_jcl_step_is_algorithm_1() -> None:
    method = moved(make(JCL, JCLConfig(queue_size=QUEUE, lam_schedule="constant")))
    b = batch(6)
    before = method.queue.keys.clone()
    loss = method.step(b)["loss"]
    expected = algorithm_1(method, b, lam=4.0)
    assert value(loss) == pytest.approx(value(expected), abs=1e-10)
    parameters = list(method.encoder.parameters())
    for got, want in zip(torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True):
        assert torch.allclose(got, want, atol=1e-10)
    # A key that entered the queue before the scoring would have been its own sample's negative.
    assert torch.equal(method.queue.keys, before)


def test_jcl_enqueues_mean_keys_after_the_step_as_they_are() -> None:
    method = moved(make(JCL, JCLConfig(queue_size=QUEUE)))
    b = batch(6)
    method.step(b)
    means = torch.stack([method.keys.encoder(view) for view in b.images[1:]]).mean(0)
    method.after_step()
    assert torch.allclose(method.queue.keys[:N], means, atol=1e-10)
    assert (method.queue.keys[:N].norm(dim=1) < 0.9999).all()
    assert method.queue.owner[:N].tolist() == b.index.tolist()


def test_jcl_may_enqueue_a_key_of_unit_length_instead() -> None:
    method = moved(make(JCL, JCLConfig(queue_size=QUEUE, enqueue="first")))
    b = batch(6)
    method.step(b)
    first = method.keys.encoder(b.images[1])
    method.after_step()
    assert torch.allclose(method.queue.keys[:N], first, atol=1e-10)


@pytest.mark.parametrize(("step", "share"), [(0, 0.1), (4, 0.5), (9, 1.0)])
def test_lambda_grows_to_its_value_in_the_last_step(step: int, share: float) -> None:
    method = make(JCL, JCLConfig(queue_size=QUEUE))
    b = batch(6, step)
    metrics = method.step(b)
    assert value(metrics["lam"]) == pytest.approx(4.0 * share)
    assert value(metrics["loss"]) == pytest.approx(value(algorithm_1(method, b, lam=4.0 * share)), abs=1e-10)


def test_one_key_makes_jcl_and_vanilla_moco_v2() -> None:
    losses = []
    for kind, config in (
        (MoCoV2, MoCoV2Config(queue_size=QUEUE)),
        (Vanilla, VanillaConfig(queue_size=QUEUE, keys=1)),
        (JCL, JCLConfig(queue_size=QUEUE, keys=1, lam=4.0)),
    ):
        method = moved(make(kind, config))
        for step in range(3):
            b = batch(2, step)
            loss = method.step(b)["loss"]
            method.after_step()
        losses.append(value(loss))
    assert losses[1] == pytest.approx(losses[0], abs=1e-12)
    assert losses[2] == pytest.approx(losses[0], abs=1e-12)


def test_moco_contrasts_one_key_with_the_queue() -> None:
    method = moved(make(MoCoV1, MoCoV1Config(queue_size=QUEUE)))
    b = batch(2)
    q, k = method.encoder(b.images[0]), method.keys.encoder(b.images[1])
    scores = torch.cat([(q * k).sum(1, keepdim=True), q @ method.queue.keys.T], 1) / 0.07
    expected = torch.nn.functional.cross_entropy(scores, torch.zeros(N, dtype=torch.int64))
    assert value(method.step(b)["loss"]) == pytest.approx(value(expected), abs=1e-10)


def test_vanilla_averages_the_losses_of_its_keys() -> None:
    method = moved(make(Vanilla, VanillaConfig(queue_size=QUEUE, keys=3)))
    b = batch(4)
    single = moved(make(MoCoV2, MoCoV2Config(queue_size=QUEUE)))
    parts = [value(single.step(replace(b, views={"image": b.images[[0, m]]}))["loss"]) for m in (1, 2, 3)]
    assert value(method.step(b)["loss"]) == pytest.approx(sum(parts) / 3, abs=1e-10)


def test_all_branches_learn_on_request_while_the_queue_stays_slow() -> None:
    b = batch(4)
    plain, full = (
        moved(make(Vanilla, VanillaConfig(queue_size=QUEUE, keys=3, all_branches=choice))) for choice in (False, True)
    )
    slow = full.keys.encoder(b.images[1])
    gradients = []
    for method in (plain, full):
        method.step(b)["loss"].backward()
        gradients.append(method.encoder.head[0].weight.grad)
        method.after_step()
        assert torch.allclose(method.queue.keys[:N], slow, atol=1e-10)
    assert not torch.allclose(gradients[0], gradients[1])
    assert all(parameter.grad is None for parameter in full.keys.parameters())


def test_simclr_scores_both_views_in_one_pass() -> None:
    method = make(SimCLR, SimCLRConfig())
    b = batch(2)
    z = torch.stack([method.encoder(view) for view in b.images])
    assert value(method.step(b)["loss"]) == pytest.approx(value(nt_xent(z, temperature=0.1)), abs=1e-10)


def test_the_key_encoder_starts_equal_and_follows_slowly_head_included() -> None:
    method = make(MoCoV2, MoCoV2Config(queue_size=QUEUE, momentum=0.9))
    old = {name: each.clone() for name, each in method.keys.encoder.named_parameters()}
    assert all(torch.equal(each, old[name]) for name, each in method.encoder.named_parameters())
    moved(method)
    method.step(batch(2))
    method.after_step()
    for name, followed in method.encoder.named_parameters():
        new = dict(method.keys.encoder.named_parameters())[name]
        assert torch.allclose(new, 0.9 * old[name] + 0.1 * followed, atol=1e-12)
    assert any(name.startswith("head") for name in old)


def test_own_old_keys_can_be_masked() -> None:
    seen, masked = (
        make(MoCoV2, replace(MoCoV2Config(queue_size=QUEUE, queue_start="empty"), mask_own=choice))
        for choice in (False, True)
    )
    losses = []
    for method in (seen, masked):
        method.step(batch(2))
        method.after_step()
        losses.append(value(method.step(batch(2))["loss"]))  # the same samples again
    assert losses[1] < losses[0] - 0.1


def test_a_queue_longer_than_the_set_is_refused_with_a_way_out() -> None:
    with pytest.raises(UserError, match=r"--queue-size 65536 exceeds the 100 samples .* use --queue-size 50"):
        make(JCL, JCLConfig())


def test_the_papers_values_are_the_defaults() -> None:
    """JCL §4.1 and App. C; MoCo and SimCLR as the JCL paper and its response state them."""
    assert (JCLConfig().temperature, JCLConfig().lam, JCLConfig().keys) == (0.2, 4.0, 5)
    assert (JCLConfig().queue_size, JCLConfig().momentum) == (65_536, 0.999)
    assert (MoCoV1Config().temperature, MoCoV2Config().temperature, SimCLRConfig().temperature) == (0.07, 0.2, 0.1)
    optim = JCL.paper.optim
    assert (optim.batch_size, optim.lr, optim.epochs, optim.schedule) == (512, 0.06, 200, "cosine")
    assert (optim.optimizer, optim.sgd_momentum, optim.weight_decay) == ("sgd", 0.9, 1e-4)
    encoder = JCL.paper.encoder
    assert (encoder.backbone, encoder.head, encoder.dim) == ("resnet50", "mlp", 128)
    assert (JCL.paper.views.augment, JCL.paper.views.image_size) == ("moco-v2", 224)
    assert MoCoV1.paper.encoder.head == "linear"
    assert (MoCoV1.paper.views.augment, MoCoV2.paper.views.augment) == ("moco-v1", "moco-v2")


def test_methods_are_found_by_name_and_unknown_ones_are_named() -> None:
    assert list(described()) == [
        "au-cl", "au-cl-moco", "cacr", "cacr-moco", "cl", "cmc", "cmc-aug", "cmc-moco", "cmc-moco-pirl",
        "cmc-patch", "cmc-pirl", "hn-cl", "hn-cl-moco", "jcl", "moco-v1", "moco-v2", "mv-dhel", "mv-infonce", "pirl",
        "predictive", "pvc", "simclr", "vanilla",
    ]  # fmt: skip
    assert find("jcl") is JCL
    with pytest.raises(UserError, match="no method 'jlc': choose one of au-cl"):
        find("jlc")
