"""`python -m bench.traffic`: what a rank sends in a step of the JCL paper's set-up, by the formulas of SCALING.md."""

from manyview.encoders import EncoderConfig, build_encoder
from manyview.methods.jcl import JCLConfig

SIZE, DIM = 224, 128
BATCHES = (512, 2048, 8192, 32_768)
RANKS = (8, 64, 256, 1024)
LINK = 25e9  # bytes per second and rank: one 200 Gbit/s adapter for each GPU


def gradients(world: int, parameters: int) -> float:
    """A ring all-reduce passes all but one share of the tensor around twice."""
    return 2 * (world - 1) / world * 4 * parameters


def shuffle(batch: int, world: int, keys: int) -> float:
    """Images go to the rank that encodes them, embeddings come back; one in W stays where it is."""
    return (world - 1) / world * (batch / world) * keys * 4 * (3 * SIZE**2 + DIM)


def queue(batch: int, world: int) -> float:
    """An all-gather: every rank's share of float32 keys and int64 sample numbers passes through every other."""
    return (world - 1) / world * batch * (4 * DIM + 8)


def main() -> None:
    keys = JCLConfig().keys
    parameters = sum(p.numel() for p in build_encoder(EncoderConfig(backbone="resnet50", dim=DIM)).parameters())
    print(f"ResNet-50 with its head: P = {parameters / 1e6:.1f} M, {SIZE} px, M′ = {keys}, D = {DIM}\n")
    print("| N | W | n | gradients, MB | shuffle, MB | queue, MB | ms at 25 GB/s | most of it |")
    print("|---|---|---|---|---|---|---|---|")
    for batch in BATCHES:
        for world in RANKS:
            if batch < world:
                continue
            parts = {
                "gradients": gradients(world, parameters),
                "shuffle": shuffle(batch, world, keys),
                "queue": queue(batch, world),
            }
            cells = " | ".join(f"{value / 1e6:.1f}" for value in parts.values())
            total, most = sum(parts.values()), max(parts, key=lambda name: parts[name])
            print(f"| {batch:,} | {world:,} | {batch // world} | {cells} | {total / LINK * 1e3:.1f} | {most} |")


if __name__ == "__main__":
    main()
