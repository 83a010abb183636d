"""Privacy bugs that are seeded into the code, and the audit that catches each."""

from __future__ import annotations

MISSED: dict[str, str] = {
    "bias without noise": "in noisy steps, parameters named *bias get no noise",
    "last three without noise": "the last 3 of more than 50 coordinates of an upload get no noise",
    "noise taken back": "the noise of an even round is minus that of the round before",
    "counted coins": "sampling coins come from a public generator whose seed is a counter",
    "true labels": "randomised response is charged and the true labels are used",
    "labels drawn again": "labels are drawn again before every upload and charged once",
    "gradient in the rate": "the learning rate is divided by the norm of the gradient before noise",
    "raw mean": "a channel that says trained=True carries a mean of raw features",
}
"""Eight that an independent check seeded, and no audit saw."""

FURTHER: dict[str, str] = {
    "cut noise": "noise beyond two standard deviations is cut off",
    "noise of its own length": "noise is scaled to the upload's own length where that is below the clip",
    "later rounds": "from round 3 on noise has half its width",
    "shared channels": "two channels of one round get the same draw of noise",
    "first chunk": "only the first 256 units' parts of a sum are clipped",
    "previous upload": "a tenth of the client's previous upload, before noise, is added after the noise",
    "last step": "the last noisy step of a round takes every record and is charged as sampled",
    "lowest bits": "training labels replace the lowest bits of the noised numbers",
    "length by data": "an upload holds only the entries of the classes that the client has",
    "refusal by data": "after the charge, a client refuses to answer where its upload is longer than the clip",
}
"""Ten that were written down before any audit was run on them."""
