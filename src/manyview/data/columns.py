"""Which columns of parquet files hold the images and their labels, and reading them. A file may hold anything."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

from manyview.data.decoding import header
from manyview.data.source import Unreadable, note_once
from manyview.errors import UserError, one_line, printable

# Of several columns the first of these is taken.
_IMAGES = ("image", "img")
_LABELS = ("label", "labels", "fine_label", "class", "cls", "target", "category", "coarse_label")
_CAPTIONS = {"caption", "captions", "text", "texts", "sentence", "sentences", "description", "alt_text", "prompt"}
_HIDDEN = -1  # the label of samples whose class is kept secret, by the hub's convention
_LABELS_AT_ONCE = 1 << 16
_LOOKED_AT = 8  # rows in which a column has to show an image


class Table(NamedTuple):
    """What the parquet files of one split have in common."""

    files: Mapping[str, Path]  # by the names with which the ids of their images begin
    image: str  # the column
    labels: list[int] | None
    classes: tuple[str, ...]


@cache
def pyarrow() -> Any:
    """The package, with what is used of it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("parquet files are read by pyarrow: pip install 'manyview[parquet]'") from error
    return pyarrow


def table(name: str, files: Mapping[str, Path], *, labelled: bool) -> Table:
    """`name` is what the user calls the set."""
    files = {each: files[each] for each in sorted(files)}
    schemas = {path: _schema(path) for path in files.values()}
    first = next((path for path, (_, rows) in schemas.items() if rows), None)
    if first is None:
        raise UserError(f"'{name}' holds no images: its parquet files have no rows")
    schema = schemas[first][0]
    image = _image_column(name, first, schema)
    label = _label_column(name, schema, {image}) if labelled else None
    _tell_captions(name, schema, label)
    names = _class_names(schema, label)
    for path, (other, _) in schemas.items():
        for column in filter(None, (image, label)):
            kinds = [_kind(each, column) for each in (schema, other)]
            if kinds[0] != kinds[1]:
                raise UserError(
                    f"'{first}' and '{path}' are not of one set: their column {column} is {kinds[0]} and {kinds[1]}; "
                    "name the files of one set by a pattern in quotes"
                )
        if _class_names(other, label) != names:
            raise UserError(f"'{first}' and '{path}' are not of one set: the names of their classes differ")
    if label is None:
        return Table(files, image, None, ())
    return Table(files, image, *_labels(name, files, label, names))


def values(path: Path, column: str, rows: int) -> Iterator[Any]:
    """The arrays of a column, of at most so many rows; of images their bytes."""
    pa, count = pyarrow(), 0
    with _reading(path), _opened(path) as file:
        # One thread, because what reads may be a forked worker, in which pyarrow's own would be missing.
        for batch in file.iter_batches(rows, columns=[column], use_threads=False):
            array = batch.column(batch.schema.get_field_index(column))
            array.validate(full=True)
            count += len(array)
            yield pa.compute.struct_field(array, "bytes") if pa.types.is_struct(array.type) else array
        if count != file.metadata.num_rows:
            raise ValueError(f"it has {count:,} rows instead of {file.metadata.num_rows:,}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # pyarrow fails in a dozen ways on broken files, and all of them mean the same
        reason = one_line(error) or type(error).__name__
        raise UserError(
            f"'{printable(str(path))}' is not a whole parquet file ({reason}): make or fetch it again"
        ) from error


def _opened(path: Path) -> Any:
    return pyarrow().parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True)


def _schema(path: Path) -> tuple[Any, int]:
    """Columns that share a name are left out."""
    with _reading(path), _opened(path) as file:
        whole = file.schema_arrow
        once = [field for field in whole if whole.names.count(field.name) == 1]
        return pyarrow().schema(once, metadata=whole.metadata), file.metadata.num_rows


def _kind(schema: Any, column: str) -> str:
    return str(schema.field(column).type) if column in schema.names else "missing"


def _features(schema: Any) -> dict[str, dict[str, Any]]:
    """What the hub's metadata say of the columns."""
    found: Any = None
    with suppress(KeyError, TypeError, ValueError, RecursionError):
        found = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    columns = found.items() if isinstance(found, dict) else ()
    return {name: feature for name, feature in columns if isinstance(feature, dict) and name in schema.names}


def _of_type(schema: Any, kind: str) -> list[str]:
    return [name for name, feature in _features(schema).items() if feature.get("_type") == kind]


def _class_names(schema: Any, label: str | None) -> tuple[str, ...]:
    """Empty where the labels themselves are all there is."""
    names = _features(schema)[label].get("names") if label in _of_type(schema, "ClassLabel") else None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _image_column(name: str, path: Path, schema: Any) -> str:
    binary = [field.name for field in schema if _holds_bytes(field.type)]
    told = [column for column in _of_type(schema, "Image") if column in binary]
    found = _in_order(told or [column for column in binary if _shows_image(path, column)], _IMAGES)
    if not found:
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise UserError(
            f"'{path}' has no column of images, only {columns or 'none'}: one holds the bytes of an image file in each "
            "row, alone or as struct<bytes, path>"
        )
    if len(found) > 1:
        note_once(f"'{name}' has images in the columns {' and '.join(found)}: those of {found[0]} are taken")
    return found[0]


def _holds_bytes(kind: Any) -> bool:
    types = pyarrow().types
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _shows_image(path: Path, column: str) -> bool:
    for value in next(values(path, column, _LOOKED_AT), []):
        with suppress(Unreadable):
            header(BytesIO(value.as_py() or b""))
            return True
    return False


def _in_order(columns: list[str], preferred: tuple[str, ...]) -> list[str]:
    return sorted(columns, key=lambda column: preferred.index(column) if column in preferred else len(preferred))


def _label_column(name: str, schema: Any, taken: set[str]) -> str | None:
    """One of named classes, or else one that is called like labels."""
    named = _in_order(_of_type(schema, "ClassLabel"), _LABELS)
    called = [column for column in _LABELS if column in schema.names]
    columns = [column for column in dict.fromkeys(named + called) if column not in taken]
    found = [column for column in columns if _is_label(schema.field(column).type)]
    if columns and not found:
        raise UserError(
            f"the labels of '{name}' cannot be used: its column {columns[0]} is {_kind(schema, columns[0])}, not a "
            "whole number or a name; use --unlabelled"
        )
    if len(found) > 1:
        note_once(f"'{name}' has labels in the columns {' and '.join(found)}: those of {found[0]} are taken")
    return found[0] if found else None


def _is_label(kind: Any) -> bool:
    types = pyarrow().types
    plain = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_integer(plain) or types.is_boolean(plain) or _is_text(plain))


def _is_text(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _tell_captions(name: str, schema: Any, label: str | None) -> None:
    texts = [field.name for field in schema if _is_text(getattr(field.type, "value_type", field.type))]
    if found := [text for text in texts if text.lower() in _CAPTIONS and text != label]:
        note_once(f"'{name}' has captions ({', '.join(found)}), which are not trained on yet")


def _labels(
    name: str, files: Mapping[str, Path], column: str, names: tuple[str, ...]
) -> tuple[list[int] | None, tuple[str, ...]]:
    """Numbers and names of the classes, or (None, ()) where not all rows have one."""
    given: list[Any] = []
    for path in files.values():
        for array in values(path, column, _LABELS_AT_ONCE):
            with _reading(path):
                given += array.to_pylist()
    hidden = sum(each is None or (bool(names) and each == _HIDDEN) for each in given)
    if hidden:
        note_once(f"'{name}' counts as unlabelled: {hidden:,} of its {len(given):,} rows have no {column}")
        return None, ()
    if not names:
        classes = sorted(set(given))
        number = {each: i for i, each in enumerate(classes)}
        return [number[each] for each in given], tuple(map(str, classes))
    wrong = next((each for each in given if type(each) is not int or not 0 <= each < len(names)), None)
    if wrong is not None:
        raise UserError(
            f"the labels of '{name}' cannot be used: its column {column} holds {short(wrong)}, which is none of its "
            f"{len(names):,} classes; use --unlabelled"
        )
    return given, names
