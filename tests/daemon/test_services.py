"""Which manager of backends the config means."""

from __future__ import annotations

import pytest

from moetuned.daemon.services import service_of
from moetuned.schema.config import Backend


def test_one_that_nobody_supervises_has_no_manager() -> None:
    with pytest.raises(ValueError, match="glm has no manager"):
        service_of(Backend(name="glm"))
