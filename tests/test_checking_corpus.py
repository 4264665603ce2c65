"""The generated corpus in the checking mode: nothing that our compiler makes is reported, and results stay the same."""

from __future__ import annotations

import pytest
from test_corpus import QUICK, SWEEP, Member, run


@pytest.mark.medium
@pytest.mark.parametrize("member", QUICK[::3], ids=lambda m: m.name)
def test_corpus(member: Member) -> None:
    run(member, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("member", SWEEP[::6], ids=lambda m: m.name)
def test_corpus_sweep(member: Member) -> None:
    run(member, check=True)
