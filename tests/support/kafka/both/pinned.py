"""A second door to the oracle's JVM, for callbacks. Each thread of Python has one thread of Java, as Kafka's consumers need it: a callback
that Java calls during a call of Python runs in the same thread, and may call the same client again.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError

from tests.support.kafka.oracle import Oracle

_MISUSE = frozenset(("IllegalState", "IllegalArgument", "Value", "ConcurrentModification", "Usage", "ConsumerClosed", "ProducerClosed"))
_OURS = {"KafkaTimeout": "Timeout", "Listener": "Kafka", "ShareConsumerClosed": "misuse"}
"""Names that kops's errors have without `Error`, and Kafka's without `Exception`."""


class PinnedJvm:
    """The door. It closes with the JVM: a callback of one of Java's threads may wait for its connection until then."""

    def __init__(self, oracle: Oracle) -> None:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs what callbacks raise on purpose
        token = secrets.token_hex(16)
        python = PythonParameters(port=0, daemonize=True, daemonize_connections=True, propagate_java_exceptions=True, auth_token=token)
        parameters = JavaParameters(port=0, auto_convert=True, auth_token=token)
        self.gateway = ClientServer(java_parameters=parameters, python_parameters=python)
        port = self.gateway.get_callback_server().get_listening_port()
        builder = oracle.java_class("py4j.ClientServer$ClientServerBuilder")()
        self._server = builder.javaPort(0).pythonPort(port).authToken(token).build()
        self._server.startServer()
        parameters.port = int(self._server.getJavaServer().getListeningPort())
        self.gateway._gateway_client.port = parameters.port
        self.jvm: Any = self.gateway.jvm

    def new(self, name: str, *arguments: object) -> Any:
        """Return a new object of a class of Kafka: the name after `org.apache.kafka.`"""
        return self.named(f"org.apache.kafka.{name}")(*arguments)

    def named(self, name: str) -> Any:
        """Return the class with this whole name."""
        found = self.jvm
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def properties(self, settings: Mapping[str, object]) -> Any:
        """Return a Properties of texts."""
        made = self.jvm.java.util.Properties()
        for name, value in settings.items():
            made.put(name, str(value))
        return made

    def millis(self, seconds: float) -> Any:
        """Return a Duration."""
        return self.jvm.java.time.Duration.ofMillis(int(seconds * 1000))

    def key(self, key: tuple[str, int]) -> Any:
        """Return a TopicPartition."""
        return self.new("common.TopicPartition", key[0], key[1])

    def keys(self, keys: Iterable[tuple[str, int]]) -> Any:
        """Return a list of TopicPartition."""
        made = self.jvm.java.util.ArrayList()
        for key in keys:
            made.add(self.key(key))
        return made

    def raise_java(self, name: str, *arguments: object) -> NoReturn:
        """Let the callback that calls this raise an exception of Java."""
        raise Py4JJavaError("a callback of a test raises this", self.named(name)(*arguments))


class Caused(Exception):
    """What an ExecutionException of Java was made of."""

    def __init__(self, cause: Any) -> None:
        super().__init__(str(cause))
        self.java_exception = cause


class Proxy:
    """An object of Python that implements an interface of Java with functions by the names of its methods."""

    def __init__(self, interface: str, **methods: Callable[..., Any]) -> None:
        self.Java = SimpleNamespace(implements=[f"org.apache.kafka.{interface}"])
        every = {
            "toString": lambda: interface,
            "hashCode": lambda: id(self) & 0x7FFFFFFF,
            "equals": lambda other: self is other,
            "configure": lambda *_: None,
            "close": lambda: None,
        }
        vars(self).update({**every, **methods})


def name_of(error: object, *, unwraps: bool = False) -> str:
    """Return the name of an error of either library, without `Exception` and `Error`. All kinds of wrong calls are `misuse`.

    With `unwraps`, a KafkaException that was made of another one has the name of that.
    """
    if error is None:
        return "-"
    if not isinstance(error, JavaObject):
        error = getattr(error, "java_exception", error)
    if isinstance(error, JavaObject):
        name = str(error.getClass().getSimpleName()).removesuffix("Exception")
        if unwraps and name == "Kafka" and error.getCause() is not None:
            return name_of(error.getCause(), unwraps=True)
    elif isinstance(error, Py4JError):
        raise error
    else:
        name = type(error).__name__.removesuffix("Error")
    return "misuse" if name in _MISUSE else _OURS.get(name, name)
