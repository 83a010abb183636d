"""GLASU with a concatenation, and labels at one client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from secure_fedgraph.algorithms.glasu.variants.concat import GlasuConcat
from secure_fedgraph.algorithms.glasu.variants.one_label_holder import GlasuOneLabelHolder


class GlasuConcatOneLabelHolder(GlasuOneLabelHolder, GlasuConcat):
    """GLASU in which rows are concatenated and the first client alone holds labels."""

    name = "glasu-concat-one-label-holder"
    summary = "GLASU with rows concatenated and labels at one client"
    settings_elsewhere: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("labels", "aggregation"), "glasu-concat-one-label-holder"
    )

    class Settings(GlasuOneLabelHolder.Settings, GlasuConcat.Settings):
        """Those of both."""

    settings: Settings
