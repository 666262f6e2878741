"""Random registrations, deletions and look-ups, against a plain model, with take-overs in between."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.chance import examples
from tests.unit.registry.rest import MemoryRegistry

SUBJECTS = st.sampled_from(["s", "t", ":.c:s"])
TEXTS = st.sampled_from(['"int"', '"long"', '"string"', '"bytes"'])


class RegistryMachine(RuleBasedStateMachine):
    """The model: each subject's versions, and the ids of each context that were ever used."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = MemoryRegistry()
        self.registry.ask("PUT /config", {"compatibility": "NONE"})
        self.versions: dict[str, dict[int, tuple[str, bool]]] = {}
        """By subject and version: the text, and whether it is softly deleted."""
        self.ids: dict[str, dict[int, str]] = {"": {}, ":.c:": {}}

    @staticmethod
    def context(subject: str) -> str:
        return ":.c:" if subject.startswith(":") else ""

    def of(self, subject: str, *, deleted: bool) -> list[int]:
        there = self.versions.get(subject, {})
        return [number for number, (_, gone) in sorted(there.items()) if deleted or not gone]

    def alive(self, context: str) -> set[str]:
        """Return the texts that some version of a context has, softly deleted ones included."""
        every = [
            each for name, found in self.versions.items() if self.context(name) == context for each in found.values()
        ]
        return {text for text, _ in every}

    @rule(subject=SUBJECTS, text=TEXTS)
    def register(self, subject: str, text: str) -> None:
        answer = self.registry.ask(f"POST /subjects/{subject}/versions", {"schema": text})
        assert answer.status == 200, answer
        number, version = answer.body["id"], answer.body["version"]
        ids, there = self.ids[self.context(subject)], self.versions.setdefault(subject, {})
        same = [each for each in self.of(subject, deleted=False) if there[each][0] == text]
        if same:
            assert version == same[-1]
        else:
            assert version == max(there, default=0) + 1
            if text not in self.alive(self.context(subject)):
                assert number == max(ids, default=0) + 1  # never one that was used before
            there[version] = text, False
        assert ids.setdefault(number, text) == text

    @rule(subject=SUBJECTS, version=st.integers(1, 6), permanent=st.booleans())
    def delete_version(self, subject: str, version: int, permanent: bool) -> None:
        answer = self.registry.ask(f"DELETE /subjects/{subject}/versions/{version}?permanent={str(permanent).lower()}")
        text, gone = self.versions.get(subject, {}).get(version, (None, False))
        if text is None:
            assert answer.status == 404
        elif gone != permanent:
            assert (answer.status, answer.body["error_code"]) == (404, 40407 if permanent else 40406)
        elif permanent:
            assert answer.body == version
            del self.versions[subject][version]
        else:
            assert answer.body == version
            self.versions[subject][version] = text, True

    @rule(subject=SUBJECTS, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        answer = self.registry.ask(f"DELETE /subjects/{subject}?permanent={str(permanent).lower()}")
        expected = self.of(subject, deleted=permanent)
        if not expected:
            assert answer.body["error_code"] == (40404 if self.of(subject, deleted=True) else 40401)
        elif permanent and self.of(subject, deleted=False):
            assert answer.body["error_code"] == 40405
        else:
            assert answer.body == expected
            there = self.versions[subject]
            self.versions[subject] = {} if permanent else {number: (text, True) for number, (text, _) in there.items()}

    @rule(subject=SUBJECTS, text=TEXTS, deleted=st.booleans())
    def look_up(self, subject: str, text: str, deleted: bool) -> None:
        answer = self.registry.ask(f"POST /subjects/{subject}?deleted={str(deleted).lower()}", {"schema": text})
        every = self.of(subject, deleted=deleted)
        same = [each for each in every if self.versions[subject][each][0] == text]
        assert answer.body.get("version", answer.body.get("error_code")) == (
            same[-1] if same else 40403 if every else 40401
        )

    @rule(compacted=st.booleans())
    def take_over(self, compacted: bool) -> None:
        """Go on with another registry on the same records, or on what compaction leaves of them."""
        records: list[Any] = self.registry.records
        last = {each[0]: each for each in records}
        if compacted:
            records = [each for each in records if last[each[0]] is each and each[1] is not None]
        self.registry = MemoryRegistry()
        self.registry.records = list(records)
        for record in records:
            self.registry.state.apply(*MemoryRegistry.read(record))

    @invariant()
    def subjects_and_ids(self) -> None:
        names = sorted(name for name in self.versions if self.of(name, deleted=False))
        assert self.registry.ask("GET /subjects").body == names
        for name in names:
            assert self.registry.ask(f"GET /subjects/{name}/versions").body == self.of(name, deleted=False)
        for context, ids in self.ids.items():
            for number, text in ids.items():
                answer = self.registry.ask(f"GET /schemas/ids/{number}?subject={context}")
                assert answer.body.get("schema", text) == text  # what an id stands for never changes


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=examples(20), stateful_step_count=20)
