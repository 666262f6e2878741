"""JSON Schemas: checked by the package ``jsonschema``, compared by the documents that they accept.

A reader can read all data of a writer if it accepts each document that the writer's schema
accepts: `json_form` brings the schemas into one form, `json_comparison` compares them. Doubtful cases count as
incompatible. The content model of an object is open unless ``additionalProperties`` is false: then a property that
only the reader has may already be written, with any value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.registry_lite.compatibility.strict_json import strict_json

_NEWEST = {
    draft: f" as draft {name}, since no $schema names another" for draft, name in ((2019, "2019-09"), (2020, "2020-12"))
}


def check(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text without spaces; raise ValueError if the schema is invalid."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    for each in (*(reference for _, reference in references), text):
        document = strict_json(each)
        kind = validator_for(document, default=Draft7Validator)
        try:
            kind.check_schema(document, format_checker=_formats(kind.FORMAT_CHECKER))
        except SchemaError as error:
            raise ValueError(error.message) from None
    return _dump(strict_json(text))


def _formats(checker: Any) -> Any:
    """Return a checker of formats that also accepts JavaScript's patterns, as far as RE2 does."""
    made = type(checker)(())
    made.checkers = {**checker.checkers, "regex": (_is_pattern, ())}
    return made


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        try:
            pc.match_substring_regex(pa.scalar(""), value)
        except (pa.ArrowException, UnicodeEncodeError):
            return False
    return True


def same(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return a text that is equal for equal schemas, whatever the order of names."""
    return normal(text, references)


def normal(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text with names in alphabetical order; raise ValueError if the schema is invalid."""
    check(text, references)
    return _dump(strict_json(text), sort=True)


def _dump(document: Any, *, sort: bool = False) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


def incompatible(reader: tuple[str, Any], writer: tuple[str, Any]) -> list[str]:
    """Return why a reader cannot read all data of a writer."""
    from sparkonce.registry_lite.compatibility.json_comparison import MAX_COMPARISONS, Comparison, TooComplexError
    from sparkonce.registry_lite.compatibility.json_form import canonical, in_each_draft

    for ours, theirs in in_each_draft(reader, writer):
        if canonical([ours.names, ours.contents]) == canonical([theirs.names, theirs.contents]):
            return []
        try:
            found = Comparison().takes(ours.root, [theirs.root], "#")
        except TooComplexError:
            return [f"the schemas are too complex: more than {MAX_COMPARISONS} pairs of their parts would be compared"]
        if found:
            newest = next((_NEWEST.get(each.draft, "") for each in (ours, theirs) if each.silent), "")
            return [f"{each}{newest}" for each in found]
    return []
