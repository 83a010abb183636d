"""What attacks on a published model share: they read no message."""

from __future__ import annotations

from secure_fedgraph.attacks.attack import OUTSIDER, Attack

NO_MODEL = (
    "no model that classifies nodes was released, and no owner has one of its own that it could publish "
    "(the folder of a finished run keeps none)"
)


class OnReleased(Attack):
    """An attack by somebody who has what a run published, and reads no message.

    ``channel`` and ``also_reads`` name the channels that a model comes from: an algorithm that has none of
    them is not attacked.
    """

    family = "released"
    adversaries = (OUTSIDER,)
    channel = "update"
    also_reads = ("moments", "class_sums", "personal_model")
    first_rounds = 0
    depends_on = ("rounds", "training.learning_rate", "training.epochs")
