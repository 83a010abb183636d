"""FairGraphFL's settings: its paper's defaults, readings of what the paper leaves open, ablations."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from secure_fedgraph.algorithms.training.gin_classifier import GinSettings


class RewardSettings(GinSettings):
    """How agents train (as :class:`GinSettings`), and what they are given.

    Args:
        server_rate: for what is added to the global model and to agents' models.
        reading: what an agent's model becomes once it is given the sparse gradient. ``fill``: the components
            it earned take the global update, the others keep its own; ``add``: its own update and the sparse
            one; ``revert``: the sparse one without its own (CGSV's protocol).
        budget: what is paid a round, by share of value.
        valuation: ``plain``: the server reads every update; ``encrypted``: it computes values on ciphertexts.
    """

    server_rate: float = Field(1.0, gt=0, allow_inf_nan=False)
    reading: Literal["fill", "add", "revert"] = "fill"
    budget: float = Field(1.0, ge=0, allow_inf_nan=False)
    valuation: Literal["plain", "encrypted"] = "plain"


class FairGraphFLSettings(RewardSettings):
    """How FairGraphFL trains, rewards and pays (as :class:`RewardSettings`), and values.

    Args:
        value_rate: the alpha of Eq. 10.
        beta_div: weight of the diversity in a value (Eq. 10).
        beta_fair: the beta of Eq. 4; large values give every agent of positive value everything.
        tanh_arg: ``r`` as printed, or ``Kr``: values scaled to a mean of 1, without which ``beta_fair`` does
            next to nothing.
        rings: the longest rings that are motifs.
        motif_keep: the share of its motifs that an agent keeps by TF-IDF.
        idf: over the agent's own graphs (``local``), or all agents' (``global``, which needs their counts).
        support: motifs in fewer of an agent's graphs than this stay with it; 1 as in the paper, where a motif
            of one graph has that graph's embedding as its prototype.
        vocabulary: ``exchanged``: agents list their motifs, and a list cannot be clipped or noised;
            ``public``: they say which of all motifs that there can be they have. It has at most 4,096, and
            leaves kinds of links out.
        lists: of motifs. ``chosen`` by TF-IDF; ``valued`` (needs ``vocabulary=public``): chosen by TF-IDF and
            valued unread: the server learns how many motifs each agent lists, how each list agrees with all,
            and how many agents list each motif.
        prototypes: ``sum``: the server reads their weighted sum over agents; ``each``: every agent's;
            ``none``: there are none (the paper's ablation).
        regularisation: the lambda of Eq. 14.
        distance: of Eq. 14. ``absolute``, as printed, or ``relative``: over a prototype's own mean square
            where that is above one. Prototypes are sums over nodes: of dense graphs they are in the
            hundreds, and the printed term then leaves nothing of the classification.
        diversity: ``printed``: an agent's share of all distinct motifs, which pays for what noise makes too;
            ``shared``: its share of all agents' triangles above chance, which noise has none of, times how
            its update agrees. Additive in pieces of graphs, so halves of the graphs with two agents are worth
            what the whole is with one, where no piece is in both.
        copies: of shared diversity. ``all``: a connected piece that several agents hold counts once, shared
            among them, by fingerprints that agents show each other; ``own``: only an agent's own copies are
            left out.
        use_gradient, use_diversity: the two parts of a value (ablations).
        sparse: False gives everybody the whole gradient (ablation "model gradient").
        weighting: of the aggregate, by ``value`` or by ``size`` (ablation "aggregation").
    """

    value_rate: float = Field(0.05, gt=0, le=1)
    beta_div: float = Field(1.0, ge=0, allow_inf_nan=False)
    beta_fair: float = Field(0.5, gt=0, allow_inf_nan=False)
    tanh_arg: Literal["r", "Kr"] = "r"
    rings: int = Field(4, ge=3, le=8)
    motif_keep: float = Field(0.85, gt=0, le=1)
    idf: Literal["local", "global"] = "local"
    support: int = Field(1, ge=1)
    vocabulary: Literal["exchanged", "public"] = "exchanged"
    lists: Literal["chosen", "valued"] = "chosen"
    prototypes: Literal["sum", "each", "none"] = "sum"
    regularisation: float = Field(0.1, ge=0, allow_inf_nan=False)
    distance: Literal["relative", "absolute"] = "relative"
    diversity: Literal["printed", "shared"] = "printed"
    copies: Literal["all", "own"] = "all"
    use_gradient: bool = True
    use_diversity: bool = True
    sparse: bool = True
    weighting: Literal["value", "size"] = "value"

    @model_validator(mode="after")
    def _check_lists(self) -> Self:
        if self.lists == "valued" and self.vocabulary != "public":
            raise PydanticCustomError(
                "lists", "valued lists have a place for every motif: set vocabulary=public too"
            )
        if self.lists == "valued" and (self.idf == "global" or self.prototypes == "each"):
            raise PydanticCustomError(
                "lists", "valued lists are read of nobody: leave idf=local, and prototypes other than each"
            )
        return self

    @field_validator("use_diversity")
    @classmethod
    def _check_parts(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and not info.data.get("use_gradient", True):
            raise PydanticCustomError(
                "parts", "with use_gradient off as well, a value has nothing to be made of"
            )
        return value


class FairGraphFLBoundedSettings(FairGraphFLSettings):
    """As :class:`FairGraphFLSettings`, and what bounds one graph's part in motif lists and prototypes.

    Args:
        diversity: ``printed`` always.
        vocabulary: ``public`` always: which motifs agents list depends on every graph.
        lists: of motifs. ``counted``: each agent's numbers of graphs by motif, of which one graph moves a
            bounded part; whatever the server reads as ``support`` or more is on the list, and prototypes
            divide by the sum of these counts. ``chosen`` by TF-IDF, as in the paper, which every graph has a
            part in, so that noise protects none; ``valued``: the same, valued unread.
        prototypes: ``bounded``: sums of clipped embeddings and counts over all agents' graphs, of which one
            graph moves a bounded part, so that noise protects it (agents weigh by their graphs, not by
            value); ``none``: there are none.
        clip: L2 norm that a graph's embedding is clipped to.
        motifs_per_graph: how many of its motifs, in the vocabulary's order, a graph counts for.
        least_count: prototypes of fewer (noised) graphs are left out.
    """

    diversity: Literal["printed"] = "printed"
    vocabulary: Literal["public"] = "public"
    lists: Literal["counted", "chosen", "valued"] = "counted"  # type: ignore[assignment]
    prototypes: Literal["bounded", "none"] = "bounded"  # type: ignore[assignment]
    clip: float = Field(50.0, gt=0, allow_inf_nan=False)
    motifs_per_graph: int = Field(8, ge=1)
    least_count: float = Field(10.0, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _check_counted(self) -> Self:
        if self.lists == "counted" and self.idf == "global":
            raise PydanticCustomError("lists", "counted lists are chosen by no idf: leave idf=local")
        return self
