"""GLASU's variants, each with a name of its own: who holds labels, what is aggregated, who is asked."""
