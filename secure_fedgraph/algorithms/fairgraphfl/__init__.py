"""FairGraphFL: agents are valued and paid; motif prototypes regularise their training."""
