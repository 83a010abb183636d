"""What is sent: channels, uploads, messages, the transport and the record of what every party saw."""

from secure_fedgraph.protocol.channel import Channel, Domain, Reveal, Touches, TouchesTrees, Unit
from secure_fedgraph.protocol.message import Message
from secure_fedgraph.protocol.transcript import Opened, Sent, Transcript, View
from secure_fedgraph.protocol.transport import InProcess, Transport
from secure_fedgraph.protocol.upload import Layout, Parts, Trees, Upload

__all__ = [
    "Channel",
    "Domain",
    "InProcess",
    "Layout",
    "Message",
    "Opened",
    "Parts",
    "Reveal",
    "Sent",
    "Touches",
    "TouchesTrees",
    "Transcript",
    "Transport",
    "Trees",
    "Unit",
    "Upload",
    "View",
]
