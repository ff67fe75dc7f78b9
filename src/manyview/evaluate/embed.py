"""Features of a whole set in a file. They are computed in parts, which several processes share and a crash leaves."""

import json
import shutil
import time
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Unpack

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from manyview import distributed
from manyview.atomic import out_file, replacing
from manyview.data.source import Source, note
from manyview.encoders import FrozenEncoder
from manyview.encoders.preparation import Preparation
from manyview.errors import UserError
from manyview.evaluate.features import Pass, checksum, computed, frozen, in_batches, none_readable

Format = Literal["npz", "parquet"]
BATCHES = 16  # of a part: what a crash costs each process at most
MANIFEST = "manifest.json"
GOES_ON = "make room, or choose another place; the same command goes on from the parts that are done"


@dataclass(frozen=True)
class Embedded:
    """What was written."""

    count: int
    unreadable: tuple[int, ...]
    """Samples that were left out because their image cannot be read."""
    preprocess: str
    """How the images were brought to the encoder's size."""

    def __len__(self) -> int:
        return self.count


def embed(
    encoder: FrozenEncoder, source: Source, out: str | Path, format: Format | None = None, **how: Unpack[Pass]
) -> Embedded:
    """Writes the features of all readable images, with their ids and, where known, their labels and classes: arrays, or
    a table. Without a `format` the ending of `out` says which: .npz or .parquet.

    The ranks of a `torchrun` share the work. What is done lies in OUT.parts until OUT is written; the same call goes on
    from there after a crash. The file does not depend on interruptions or on the number of ranks. Rank 0 writes it; the
    others return, with a count of 0, when their share is done.
    """
    out = Path(out)
    encoder.to(how.get("device"))
    size = how.get("batch_size", 256)
    batches, prepared = in_batches(source, size), str(Preparation(source.size, encoder.image_size))
    with out_file(out, GOES_ON):
        write = _WRITERS[format or _by_ending(out)]()
        parts = _Parts.begun(
            out,
            {
                "encoder": {"digest": checksum(encoder), "backbone": encoder.card.backbone},
                "data": {"name": source.name, "digest": source.select(encoder.card.fields).cache_key},
                "--images-per-pass": size,
                "--device": encoder.mean.device.type,
                "images": prepared,
            },
        )
    count = -(-len(batches) // BATCHES)
    mine = range(distributed.rank(), count, distributed.world_size())
    missing = [part for part in mine if not parts.path(part).exists()]
    distributed.wait_for_all()  # rank 0 removes the parts at the end
    if len(missing) < len(mine) and distributed.rank() == 0:
        note(f"{parts.folder}: {len(mine) - len(missing):,} of {len(mine):,} parts are there, the others follow")
    wanted = [batch for part in missing for batch in batches[part * BATCHES : (part + 1) * BATCHES]]
    kept: list[Tensor] = []
    rows: list[Tensor] = []
    with frozen(encoder):
        workers, progress = how.get("workers", 0), how.get("progress", False)
        found = computed([encoder], source, wanted, workers=workers, progress=progress)
        for done, (index, [features]) in enumerate(found, 1):
            kept.append(index)
            rows += features.values()
            if done % BATCHES == 0 or done == len(wanted):
                with out_file(out, GOES_ON):
                    parts.write(missing[(done - 1) // BATCHES], torch.cat(kept), torch.cat(rows or [torch.empty(0, 0)]))
                kept, rows = [], []
    if distributed.rank() > 0:
        return Embedded(0, (), prepared)
    parts.wait_for(count)
    index = torch.cat([parts.read(part, "index") for part in range(count)])
    if not len(index):
        raise none_readable(source)
    joined = (parts.read(part, "embeddings") for part in range(count))
    with out_file(out, GOES_ON):
        with replacing(out) as file:
            write(file, source, index, (rows for rows in joined if len(rows)))
        shutil.rmtree(parts.folder)
    lost = torch.ones(len(source), dtype=torch.bool).index_fill(0, index, False).nonzero()[:, 0]
    return Embedded(len(index), tuple(lost.tolist()), prepared)


def _by_ending(out: Path) -> Format:
    if out.suffix not in (".npz", ".parquet"):
        raise UserError(f"--out {out} ends neither in .npz nor in .parquet: let it, or say --format npz")
    return "parquet" if out.suffix == ".parquet" else "npz"


@dataclass(frozen=True)
class _Parts:
    """The directory beside the file that is to be written."""

    folder: Path

    @classmethod
    def begun(cls, out: Path, made_by: Mapping[str, Any]) -> "_Parts":
        """New, or left by an interrupted call that computed the same."""
        parts = cls(out.with_name(f"{out.name}.parts"))
        manifest = parts.folder / MANIFEST
        away = f"remove {parts.folder} to begin anew, or choose another --out"
        if distributed.rank() == 0 and not (parts.folder.exists() and any(parts.folder.iterdir())):
            with replacing(manifest) as file:
                file.write(json.dumps(made_by, indent=2).encode() + b"\n")
        distributed.wait_for_all()
        if distributed.rank() > 0 and not manifest.exists():
            raise UserError(f"{parts.folder} is not there: several machines need an --out that all of them see")
        try:
            said = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{parts.folder} is not what an interrupted `manyview embed` leaves: {away}") from error
        differing = [name for name in made_by if not isinstance(said, dict) or said.get(name) != made_by[name]]
        if differing:
            others = " and ".join(differing)
            raise UserError(f"{parts.folder} holds features made with other {others}: {away}")
        return parts

    def path(self, part: int) -> Path:
        return self.folder / f"part-{part:05d}.safetensors"

    def write(self, part: int, index: Tensor, embeddings: Tensor) -> None:
        with replacing(self.path(part)) as file:
            file.write(safetensors.torch.save({"index": index, "embeddings": embeddings}))

    def wait_for(self, count: int) -> None:
        """Until all parts are there. The ranks may need hours: longer than a collective call waits for the others, and
        where one of them dies `torchrun` ends all."""
        for part in range(count):
            while not self.path(part).exists():
                time.sleep(0.05)

    def read(self, part: int, name: str) -> Tensor:
        try:
            with safetensors.safe_open(self.path(part), framework="pt") as content:
                tensor: Tensor = content.get_tensor(name)
                return tensor
        except (OSError, SafetensorError) as error:
            raise UserError(
                f"{self.path(part)} cannot be read ({error}): remove it and start the same command again"
            ) from error


# The formats. A writer gets the numbers of the samples (n,) and their rows (m, F), (m′, F) … in the same order.


class _Npz:
    """`ids`, `embeddings` and, where known, `labels` and `classes`."""

    def __call__(self, file: IO[bytes], source: Source, index: Tensor, parts: Iterable[Tensor]) -> None:
        arrays = {"ids": np.array([source.id(number) for number in index.tolist()], dtype=np.str_)}
        if source.labels is not None:
            arrays |= {"labels": source.labels[index].numpy(), "classes": np.array(source.classes, dtype=np.str_)}
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
            with archive.open("embeddings.npy", "w", force_zip64=True) as entry:
                for place, rows in enumerate(parts):  # one by one: all of them may not fit into memory
                    if place == 0:
                        shape = (len(index), rows.shape[1])
                        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                        np.lib.format.write_array_header_1_0(entry, header)
                    entry.write(rows.numpy().astype("<f4", copy=False).data)


class _Parquet:
    """Columns `id`, `embedding` and, where known, `label` and `class`."""

    def __init__(self) -> None:
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise UserError("--format parquet needs pyarrow: pip install 'manyview[parquet]'") from error
        self.arrow, self.parquet = pyarrow, pyarrow.parquet

    def __call__(self, file: IO[bytes], source: Source, index: Tensor, parts: Iterable[Tensor]) -> None:
        arrow, writer, start = self.arrow, None, 0
        for rows in parts:
            numbers = index[start : start + len(rows)].tolist()
            start += len(rows)
            columns: dict[str, Any] = {
                "id": arrow.array([source.id(number) for number in numbers], arrow.string()),
                "embedding": arrow.FixedSizeListArray.from_arrays(rows.numpy().reshape(-1), rows.shape[1]),
            }
            if source.labels is not None:
                labels = source.labels[numbers].tolist()
                columns["label"] = arrow.array(labels, arrow.int64())
                columns["class"] = arrow.array([source.classes[label] for label in labels], arrow.string())
            table = arrow.table(columns)
            if writer is None:
                words = [
                    name for name in columns if name != "embedding"
                ]  # numbers that never repeat need no dictionary
                writer = self.parquet.ParquetWriter(file, table.schema, use_dictionary=words)
            writer.write_table(table)
        if writer is not None:
            writer.close()


_WRITERS: dict[Format, type[_Npz] | type[_Parquet]] = {"npz": _Npz, "parquet": _Parquet}
