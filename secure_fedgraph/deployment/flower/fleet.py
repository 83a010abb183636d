"""A silo's end of the way: letters from Flower's Fleet interface, and their answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from secure_fedgraph.core.errors import BadInput, HostileMessage, SecureFedGraphError
from secure_fedgraph.deployment.flower.pinned import check_flower
from secure_fedgraph.deployment.letters import KINDS, Letter, checked

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.supercore.protobuf.client import ProtobufClientInterceptor

BEAT = 10.0
"""Seconds from one sign of life to the next; after three the SuperLink takes the silo for gone."""
RECORD, KIND, BODY = "letter", "kind", "body"


class Unreachable(SecureFedGraphError):
    """The server cannot be reached, or not any more: try again."""


SOON, LATER = 0.01, 0.2
"""Seconds between two tries to get a part of a message that is announced and not there yet. Flower's are a
second at first, and every exchange would wait for that."""


class Fleet:
    """The connection of one silo.

    Guarantees:
        - the server's certificate is checked against the authority of the federation's file, and the silo
          proves its node key with every request;
        - bodies are bytes for this package: nothing in them is run or unpickled;
        - a broken connection raises :class:`Unreachable`; whatever was not answered is asked again.

    Args:
        address: ``host:port``.
        authority: the certificate that signed the server's, as PEM.
        key: the silo's private node key, as PEM.
    """

    def __init__(self, address: str, authority: bytes, key: bytes) -> None:
        check_flower()
        from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        private = load_pem_private_key(key, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise BadInput("node.key is no key of an elliptic curve: make one with 'silo keygen'")
        self._public = public_key_to_bytes(private.public_key())
        interceptors: list[ProtobufClientInterceptor] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private, private.public_key()),
        ]
        # an answer of many megabytes must not keep greetings waiting
        self._client, self._sending = (
            FleetHttpClient.from_server_address(address, False, authority, interceptors=interceptors)
            for _ in range(2)
        )
        self._address = address
        self._node: Any = None
        self._beaten = 0.0

    def connect(self) -> int:
        """Signs in.

        Returns:
            The silo's node id.

        Raises:
            Unreachable: where nobody answers.
            BadInput: where the certificate or the node key is refused, with what mends it.
        """
        from flwr.proto.fleet_pb2 import ActivateNodeRequest
        from flwr.proto.node_pb2 import Node

        with self._translated():
            request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=BEAT)
            self._node = Node(node_id=self._client.ActivateNode(request).node_id)
        self._beaten = time.monotonic()
        return int(self._node.node_id)

    def receive(self) -> tuple[Message, Letter | HostileMessage] | None:
        """The next letter, with what :meth:`answer` needs; None where there is none.

        Raises:
            Unreachable: where the connection is broken.
        """
        from flwr.common.serde import message_from_proto
        from flwr.proto.fleet_pb2 import PullMessagesRequest
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
        from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects

        with self._translated():
            if time.monotonic() - self._beaten > BEAT / 2:
                self._beaten = time.monotonic()
                self._client.SendNodeHeartbeat(
                    SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=BEAT)
                )
            pulled = self._client.PullMessages(PullMessagesRequest(node=self._node))
            if not pulled.messages_list:
                return None
            head = message_from_proto(pulled.messages_list[0])
            run, number = head.metadata.run_id, head.metadata.message_id
            contents = pull_objects(
                [tree.object_id for tree in iterate_object_tree(pulled.message_object_trees[0])],
                make_pull_object_fn_protobuf(self._client.PullObject, self._node, run),
                initial_backoff=SOON,
                backoff_cap=LATER,
            )
            self._client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=number)
            )
            message: Any = inflate_object_from_contents(number, contents)
            message.metadata.__dict__["_message_id"] = number
        try:
            return message, letter_in(message, KINDS)
        except HostileMessage as error:
            return message, error

    def answer(self, message: Message, letter: Letter) -> None:
        """Sends the answer to a message.

        Raises:
            Unreachable: where the connection is broken; the server then asks again.
        """
        from flwr.app import Message as FlowerMessage
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            no_object_id_recompute,
        )
        from flwr.supercore.inflatable.inflatable_protobuf_utils import make_push_object_fn_protobuf
        from flwr.supercore.inflatable.inflatable_utils import push_objects

        reply = FlowerMessage(record_of(letter), reply_to=message)
        with self._translated(), no_object_id_recompute():  # each is a digest of the whole body
            reply.metadata.__dict__["_message_id"] = reply.object_id
            pushed = self._sending.PushMessages(
                PushMessagesRequest(
                    node=self._node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[get_object_tree(reply)],
                    clientapp_runtime_list=[0.0],
                )
            )
            push_objects(
                get_all_nested_objects(reply),
                make_push_object_fn_protobuf(
                    self._sending.PushObject, self._node, message.metadata.run_id, pushed.session_id
                ),
                object_ids_to_push=set(pushed.objects_to_push),
            )

    def close(self) -> None:
        """Signs out, where the server is still there."""
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest

        try:
            if self._node is not None:
                with self._translated():
                    self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
        except SecureFedGraphError:
            pass
        self._client.close()
        self._sending.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Flower's errors as this package's."""
        import httpx
        from flwr.supercore.inflatable.inflatable_utils import ObjectPullError

        try:
            yield
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (401, 403):
                raise Refusal(self._address) from None
            raise Unreachable(f"{self._address}: status {error.response.status_code}") from None
        except httpx.TransportError as error:
            text = str(error)
            if "CERTIFICATE_VERIFY_FAILED" in text:
                why = "expired" if "expired" in text else text.partition("failed: ")[2].partition(" (")[0]
                raise BadInput(
                    f"the certificate of {self._address} is refused ({why}): ask the operator for a new "
                    "certificate, or for a federation file that names its authority"
                ) from None
            raise Unreachable(f"{self._address}: {type(error).__name__}") from None
        except (ObjectPullError, ValueError, RuntimeError) as error:
            raise Unreachable(f"{self._address}: {type(error).__name__}") from None


class Refusal(BadInput):
    """The SuperLink does not accept this silo's node key, or its clock."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"{address} refuses this silo's node key: ask the operator whether the server runs the "
            "federation "
            "file that you approved, and check that this machine's clock is right (within five minutes)"
        )


def record_of(letter: Letter) -> Any:
    """A letter as the content of a Flower message."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({RECORD: ConfigRecord({KIND: letter.kind, BODY: letter.body})})


def letter_in(message: Any, kinds: tuple[str, ...]) -> Letter:
    """The letter in a Flower message.

    Raises:
        HostileMessage: where there is none.
    """
    records = message.content.config_records if message.has_content() else {}
    if set(records) != {RECORD} or set(records[RECORD]) != {KIND, BODY}:
        raise HostileMessage("a Flower message without a letter")
    return checked(records[RECORD][KIND], records[RECORD][BODY], kinds)
