"""Kafka's own command-line tools, all in one JVM. Their main methods are called, and their output and exit codes are returned.

tools = KafkaTools(oracle)
tools.run("topics", "--bootstrap-server", bootstrap, "--list")
"""

from __future__ import annotations

import subprocess
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from tests.support.kafka.manual_jvm import named, proxy
from tests.support.kafka.oracle import Oracle, java_command

TOOLS: Final = {
    "broker-api-versions": ("org.apache.kafka.tools.BrokerApiVersionsCommand", "kafka.admin.BrokerApiVersionsCommand"),
    "cluster": ("org.apache.kafka.tools.ClusterTool",),
    "configs": ("kafka.admin.ConfigCommand",),
    "console-consumer": ("org.apache.kafka.tools.consumer.ConsoleConsumer",),
    "console-share-consumer": ("org.apache.kafka.tools.consumer.ConsoleShareConsumer",),
    "console-producer": ("org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer"),
    "consumer-perf-test": ("org.apache.kafka.tools.ConsumerPerformance",),
    "consumer-groups": ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",),
    "delete-records": ("org.apache.kafka.tools.DeleteRecordsCommand",),
    "features": ("org.apache.kafka.tools.FeatureCommand",),
    "get-offsets": ("org.apache.kafka.tools.GetOffsetShell",),
    "groups": ("org.apache.kafka.tools.GroupsCommand",),
    "leader-election": ("org.apache.kafka.tools.LeaderElectionCommand",),
    "log-dirs": ("org.apache.kafka.tools.LogDirsCommand",),
    "metadata-quorum": ("org.apache.kafka.tools.MetadataQuorumCommand",),
    "producer-perf-test": ("org.apache.kafka.tools.ProducerPerformance",),
    "reassign-partitions": ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand",),
    "share-consumer-perf-test": ("org.apache.kafka.tools.ShareConsumerPerformance",),
    "share-groups": ("org.apache.kafka.tools.consumer.group.ShareGroupCommand",),
    "streams-groups": ("org.apache.kafka.tools.streams.StreamsGroupCommand",),
    "topics": ("org.apache.kafka.tools.TopicCommand",),
    "transactional-message-copier": ("org.apache.kafka.tools.TransactionalMessageCopier",),
    "transactions": ("org.apache.kafka.tools.TransactionsCommand",),
    "verifiable-consumer": ("org.apache.kafka.tools.VerifiableConsumer",),
    "verifiable-share-consumer": ("org.apache.kafka.tools.VerifiableShareConsumer",),
    "verifiable-producer": ("org.apache.kafka.tools.VerifiableProducer",),
}
TIMEOUT_S: Final = 120
_TRAPPED: Final = "trapped exit "


class KafkaTools:
    """The tools of one version. Their exits are trapped. Their shutdown hooks run when they have ended."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self._system = oracle.java_class("java.lang.System")
        self._mains: dict[str, Any] = {}
        self._hooks = oracle.jvm.java.util.concurrent.ConcurrentLinkedQueue()
        exits = oracle.java_class("org.apache.kafka.common.utils.Exit")
        interface = "org.apache.kafka.common.utils.Exit$"
        thrower = self._thrower()
        exits.setExitProcedure(proxy(oracle, f"{interface}Procedure", thrower))
        exits.setHaltProcedure(proxy(oracle, f"{interface}Procedure", thrower))
        exits.setShutdownHookAdder(proxy(oracle, f"{interface}ShutdownHookAdder", self._recorder()))

    def run(self, tool: str, *arguments: object, stdin: str = "") -> str:
        """Run a tool to its end and return what it prints on both streams.

        An exit code other than 0 is added as a last line `exit N`, an exception that it throws as `!! …`.
        """
        oracle, system = self.oracle, self._system
        jvm = oracle.jvm
        with oracle.lock:
            main = self._main(tool)
            buffer = jvm.java.io.ByteArrayOutputStream()
            stream = jvm.java.io.PrintStream(buffer, True, "UTF-8")
            out, err, given = system.out, system.err, getattr(system, "in")
            system.setOut(stream)
            system.setErr(stream)
            system.setIn(jvm.java.io.ByteArrayInputStream(stdin.encode()))
            self._console(stream, stream)
            end = ""
            try:
                main(oracle.strings([str(argument) for argument in arguments]))
            except Py4JJavaError as caught:
                end = f"!! {caught.java_exception.toString()}\n"
            finally:
                self._run_hooks()
                system.setOut(out)
                system.setErr(err)
                system.setIn(given)
                self._console(out, err)
            stream.flush()
            return _cut(bytes(buffer.toByteArray()).decode() + end)

    def run_process(self, tool: str, *arguments: object) -> str:
        """Run a tool in a JVM of its own, for a tool whose end only shows there."""
        command = [*java_command(self.oracle.version), self._class(tool), *map(str, arguments)]
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False
        )
        return ran.stdout.decode() + (f"exit {ran.returncode}\n" if ran.returncode else "")

    def _main(self, tool: str) -> Any:
        if tool not in self._mains:
            self._mains[tool] = self.oracle.java_class(self._class(tool)).main
        return self._mains[tool]

    def _class(self, tool: str) -> str:
        loader = self.oracle.java_class("java.lang.ClassLoader")
        return next(name for name in TOOLS[tool] if loader.getSystemResource(name.replace(".", "/") + ".class") is not None)

    def _console(self, out: Any, err: Any) -> None:
        """Set Scala's console streams, because Scala keeps those that it started with."""
        console = getattr(self.oracle.java_class("scala.Console$"), "MODULE$")
        console.setOutDirect(out)
        console.setErrDirect(err)

    def _run_hooks(self) -> None:
        for _ in range(self._hooks.size()):
            _, hook = self._hooks.poll()
            hook.run()

    def _thrower(self) -> Any:
        """Return a handle for InvocationHandler.invoke that throws an exception with the arguments in its text."""
        oracle, handles = self.oracle, self.oracle.jvm.java.lang.invoke
        lookup, kinds = handles.MethodHandles.publicLookup(), handles.MethodType
        text, thrown, values = (named(oracle, one) for one in ("java.lang.String", "java.lang.RuntimeException", "[Ljava.lang.Object;"))
        shown = lookup.findStatic(named(oracle, "java.util.Arrays"), "toString", kinds.methodType(text, values))
        marked = lookup.findVirtual(text, "concat", kinds.methodType(text, text)).bindTo(_TRAPPED)
        made = lookup.findConstructor(thrown, kinds.methodType(oracle.jvm.java.lang.Void.TYPE, text))
        thrower = handles.MethodHandles.throwException(named(oracle, "java.lang.Object"), thrown)
        handle = shown
        for then in (marked, made, thrower):
            handle = handles.MethodHandles.filterReturnValue(handle, then)
        return self._behind_invoke(handle)

    def _recorder(self) -> Any:
        """Return a handle for InvocationHandler.invoke that keeps the arguments."""
        oracle, jvm = self.oracle, self.oracle.jvm
        handles = jvm.java.lang.invoke
        kind = handles.MethodType.methodType(jvm.java.lang.Boolean.TYPE, named(oracle, "java.lang.Object"))
        add = (
            handles.MethodHandles.publicLookup()
            .findVirtual(named(oracle, "java.util.concurrent.ConcurrentLinkedQueue"), "add", kind)
            .bindTo(self._hooks)
        )
        void = handles.MethodType.methodType(jvm.java.lang.Void.TYPE, named(oracle, "[Ljava.lang.Object;"))
        handle = handles.MethodHandles.filterReturnValue(
            add.asType(void), handles.MethodHandles.constant(named(oracle, "java.lang.Object"), None)
        )
        return self._behind_invoke(handle)

    def _behind_invoke(self, handle: Any) -> Any:
        """Turn a handle that takes only the arguments into one for InvocationHandler.invoke."""
        jvm = self.oracle.jvm
        kinds = jvm.java.util.List.of(*(named(self.oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method")))
        return jvm.java.lang.invoke.MethodHandles.dropArguments(handle, 0, kinds)


def _cut(text: str) -> str:
    """Remove what tools print about the exception that replaces their exit. The first such exception gives the exit code."""
    position = text.find(_TRAPPED)
    if position < 0:
        return text
    code = text[position:].partition("[")[2].partition(",")[0]
    kept = text[: text.rfind("\n", 0, position) + 1]
    return kept if code == "0" else f"{kept}exit {code}\n"
