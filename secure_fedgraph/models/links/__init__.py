"""Networks whose items are links: what they say of two nodes together."""
