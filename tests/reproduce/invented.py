"""Rows that the tests of recipes and of their page share."""

from manyview.reproduce.job import Job, Row
from manyview.reproduce.recipe import Recipe

PARTS = ("query", *["positive"] * 4, *["negative"] * 9)


def made_up(recipe: Recipe, job: Job, number: int) -> list[Row]:
    """Rows as the job would add them, of invented values."""
    columns = recipe.columns(job.table)
    roles = {"cacr-fig6": PARTS[1:], "cacr-fig7": PARTS}.get(recipe.name, ("",))
    rows = [
        {
            **dict.fromkeys(columns, f"{1 + (number + place) % 7}"),
            "step": "0.005" if "low" in columns else step,
            "role": role,
            "quantity": quantity,
            "encoder": encoder,
            **job.keys,
        }
        for step in (("1", "2", "3") if "epoch" in columns else ("1",))
        for quantity in (("similarity", "variance") if "quantity" in columns else ("",))
        for encoder in (("trained", "random") if "encoder" in columns else ("",))
        for place, role in enumerate(roles)
    ]
    return [{column: row[column] for column in columns} for row in rows]
