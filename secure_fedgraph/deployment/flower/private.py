"""What is used of Flower that Flower keeps private: all of it stands here, and nowhere else.

Flower's public way to a machine is a SuperNode. It runs Python that the server sends, under the account that
holds graph and keys, and it starts a process for each message. A public SuperLink starts runs and registers
nodes without a login, on the port that silos reach. ``docs/flower_compatibility.md`` compares both. So a
silo speaks the Fleet interface itself (:class:`Line`), and the server holds a SuperLink that has this
interface and nothing else (:class:`Link`).

Import this after :func:`~secure_fedgraph.deployment.flower.releases.check_flower`: it knows the releases that
have these parts.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64decode
from collections.abc import Collection, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI
from flwr.app import Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID, TIMESTAMP_HEADER
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    FLWR_IN_MEMORY_DB_NAME,
    NOOP_FEDERATION_ID,
    TaskType,
)
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)
from flwr.supercore.object_store import NoObjectInStoreError, ObjectStoreFactory
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, verify_signature
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

BEAT = 10.0
"""Seconds from one sign of life of a silo to the next; after three the SuperLink takes it for gone."""
SOON, LATER = 0.01, 0.2
"""Seconds between two tries to get a part of a message that is announced and not there yet. Flower's are a
second at first, and every exchange would wait for that."""
FLEET = "/v1/fleet/"
"""Where requests of silos begin."""
PULL, ARRIVALS = FLEET + "pull-messages", (FLEET + "push-messages", FLEET + "push-object")
"""A silo's question for messages, and the requests by which its answers come."""
HEADERS = tuple(
    name.lower().encode()
    for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)
)
BROKEN = (ObjectPullError, ValueError, RuntimeError)
"""What a :class:`Line` raises, besides httpx's errors, where a message cannot be carried."""


class Line:
    """A silo's end: one node of a SuperLink.

    Args:
        address: ``host:port``.
        authority: the certificate that signed the server's, as PEM.
        key: the silo's node key, which signs every request.
    """

    def __init__(self, address: str, authority: bytes, key: ec.EllipticCurvePrivateKey) -> None:
        self._public = public_key_to_bytes(key.public_key())
        signed = NodeAuthHttpInterceptor(key, key.public_key())
        # an answer of many megabytes must not keep greetings waiting
        self._client, self._sending = (
            FleetHttpClient.from_server_address(address, False, authority, interceptors=[signed])
            for _ in range(2)
        )
        self._node = Node()

    def activate(self) -> int:
        """Signs in, and returns the node's id."""
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=BEAT)
        self._node = Node(node_id=self._client.ActivateNode(request).node_id)
        return self._node.node_id

    def beat(self) -> None:
        """Gives a sign of life."""
        self._client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=BEAT))

    def pull(self) -> Message | None:
        """The next message, where there is one."""
        pulled = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not pulled.messages_list:
            return None
        head = message_from_proto(pulled.messages_list[0]).metadata
        contents = pull_objects(
            [tree.object_id for tree in iterate_object_tree(pulled.message_object_trees[0])],
            make_pull_object_fn_protobuf(self._client.PullObject, self._node, head.run_id),
            initial_backoff=SOON,
            backoff_cap=LATER,
        )
        self._client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self._node, run_id=head.run_id, message_object_id=head.message_id
            )
        )
        return _inflated(head.message_id, contents)

    def push(self, content: RecordDict, reply_to: Message) -> None:
        """Answers a message."""
        reply = Message(content, reply_to=reply_to)
        with no_object_id_recompute():  # each is a digest of the whole body
            _name(reply)
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
                    self._sending.PushObject, self._node, reply.metadata.run_id, pushed.session_id
                ),
                object_ids_to_push=set(pushed.objects_to_push),
            )

    def deactivate(self) -> None:
        """Signs out."""
        self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
        self._sending.close()


class Link:
    """The server's end: a SuperLink in memory, with one run and the Fleet interface alone.

    Args:
        keys: public node keys, by names of the caller's.
    """

    def __init__(self, keys: Mapping[str, ec.EllipticCurvePublicKey]) -> None:
        factory = LinkStateFactory(
            FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
        )
        self._state = state = factory.state()
        self.app = FastAPI(
            openapi_url=None,
            middleware=[
                Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
                Middleware(ProtobufTranslationMiddleware),
                Middleware(NodeAuthMiddleware),
            ],
        )
        self.app.state.linkstate_factory = factory
        self.app.state.enable_supernode_auth = True
        self.app.include_router(router)
        self._keys = {public_key_to_bytes(key): key for key in keys.values()}
        self.nodes = {
            name: state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public_key_to_bytes(key), 0)
            for name, key in keys.items()
        }
        self._run = state.create_run(
            None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        (task,) = state.get_tasks(run_ids=[self._run])
        self._task = task.task_id
        state.claim_task(self._task)
        state.activate_task(self._task)
        self._arriving: dict[str, Message] = {}
        """Ticket -> an answer that is announced, and whose parts are not all there yet."""

    def signer(self, headers: Mapping[bytes, bytes]) -> bytes | None:
        """The node key that signed a request's time, if one did; how old that may be is Flower's to check.

        Args:
            headers: the request's, with names in small letters.
        """
        text, signed, timestamp = (headers.get(name, b"") for name in HEADERS)
        try:
            name, signature = b64decode(text, validate=True), b64decode(signed, validate=True)
        except ValueError:
            return None
        key = self._keys.get(name)
        return name if key is not None and verify_signature(key, timestamp, signature) else None

    def beat(self) -> None:
        """Keeps the run alive."""
        self._state.acknowledge_task_heartbeat(self._task)

    def push(self, node: int, content: RecordDict, keep: float) -> str:
        """Sends a message.

        Args:
            node: whom to.
            content: what it says.
            keep: seconds after which it is dropped.

        Returns:
            The ticket of its answer; nothing for a node that is not signed in.
        """
        metadata = Metadata(
            run_id=self._run,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=node,
            reply_to_message_id="",
            group_id=secrets.token_hex(8),  # equal messages are told apart by it
            created_at=time.time(),
            ttl=keep,
            message_type="train",
        )
        message = make_message(metadata, content)
        with no_object_id_recompute():
            ticket = _name(message)
            session = self._state.start_session(self._run)
            head, parts = remove_content_from_message(message), get_all_nested_objects(message)
            stored, missing = self._state.store_message_and_object_tree(
                head, get_object_tree(message), session
            )
            for part in missing if stored else ():
                self._state.store_object(self._run, session, part, parts[part].deflate())
        return ticket if stored else ""

    def pull(self, tickets: Collection[str]) -> dict[str, Message | None]:
        """Answers that are whole, and kept no longer: ticket -> message, or None where none will come."""
        waiting = {ticket for ticket in tickets if ticket not in self._arriving}
        replies = self._state.get_message_res(message_ids=waiting, run_id=self._run)
        came = {reply.metadata.reply_to_message_id: reply for reply in replies}
        self._state.delete_messages(message_ins_ids=set(came))
        self._arriving |= came
        answers: dict[str, Message | None] = {}
        for ticket in [one for one in tickets if one in self._arriving]:
            reply = self._arriving[ticket]
            contents = self._parts_of(reply)
            if b"" not in contents.values():
                lost = not contents or None in contents.values()
                answers[ticket] = None if lost else _inflated(reply.metadata.message_id, contents)
                self._state.object_store.delete(reply.metadata.message_id)
                del self._arriving[ticket]
        return answers

    def _parts_of(self, reply: Message) -> dict[str, Any]:
        """Each part of an answer: its bytes, none of them yet, or None where it is lost."""
        try:
            tree = self._state.object_store.get_object_tree(reply.metadata.message_id)
        except NoObjectInStoreError:
            return {}
        names = [one.object_id for one in iterate_object_tree(tree)]
        return {name: self._state.get_object(self._run, name) for name in names}


def _name(message: Message) -> str:
    """Names a message by its digest, as Flower does."""
    number = message.object_id
    message.metadata.__dict__["_message_id"] = number
    return number


def _inflated(number: str, contents: dict[str, bytes]) -> Message:
    message: Any = inflate_object_from_contents(number, contents)
    message.metadata.__dict__["_message_id"] = number
    return message  # type: ignore[no-any-return]
