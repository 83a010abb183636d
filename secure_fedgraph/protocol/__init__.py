"""The transport, the courier, and the record of what every party saw."""

from secure_fedgraph.protocol.transcript import Opened, Sent, Transcript, View
from secure_fedgraph.protocol.transport import DirectCalls, Transport

__all__ = ["DirectCalls", "Opened", "Sent", "Transcript", "Transport", "View"]
