"""What guesses are about, as ``Reconstruction.kind`` has it, by how they are drawn."""

VOCABULARY, LABELS, FEATURES = "vocabulary", "label shares", "node features"
NODES = (FEATURES, "nodes found by an oracle")
LINKS = ("links from answers", "links from lists", "links by likeness", "links of embeddings")
ROWS = (
    "rows of another owner",
    "words from embeddings",
    "features of neighbours",
    "training node",
    "mashes under repeated noise",
    "motifs of one graph",
    "graph embeddings",
    "the graph that came or went",
    "mean update",
    "first update",
    "update without its noise",
)
BATCHES = "labels of batches"
TESTED = "class shares of test nodes"
SIZES = ("numbers of test nodes", "training graphs of the other agents")
