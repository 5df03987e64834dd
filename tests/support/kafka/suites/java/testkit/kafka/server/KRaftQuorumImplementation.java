package kafka.server;

import kafka.utils.Logging;

import kops.Fakes;
import kops.Nodes;
import kops.Server;

import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.fault.FaultHandler;

import java.io.File;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;

import scala.Option;

/**
 * Starts the brokers of Kafka's tests in Scala (QuorumTestHarness and its subclasses): nodes of kops. The controller is Kafka's own, in
 * the JVM of the tests, so that it is a mixed cluster.
 */
public class KRaftQuorumImplementation implements QuorumImplementation {
    private final ControllerServer controllerServer;
    private final FaultHandlerFactory faultHandlerFactory;
    private final File metadataDir;
    private final CompletableFuture<Map<Integer, InetSocketAddress>> voters;
    private final String clusterId;
    private final Logging log;
    private final FaultHandler faultHandler;
    private final List<Server> servers = new ArrayList<>();

    public KRaftQuorumImplementation(ControllerServer controllerServer, FaultHandlerFactory faultHandlerFactory, File metadataDir,
                                     CompletableFuture<Map<Integer, InetSocketAddress>> controllerQuorumVotersFuture, String clusterId,
                                     Logging log, FaultHandler faultHandler) {
        this.controllerServer = controllerServer;
        this.faultHandlerFactory = faultHandlerFactory;
        this.metadataDir = metadataDir;
        this.voters = controllerQuorumVotersFuture;
        this.clusterId = clusterId;
        this.log = log;
        this.faultHandler = faultHandler;
    }

    public ControllerServer controllerServer() {
        return controllerServer;
    }

    public FaultHandlerFactory faultHandlerFactory() {
        return faultHandlerFactory;
    }

    public File metadataDir() {
        return metadataDir;
    }

    public CompletableFuture<Map<Integer, InetSocketAddress>> controllerQuorumVotersFuture() {
        return voters;
    }

    public String clusterId() {
        return clusterId;
    }

    public Logging log() {
        return log;
    }

    public FaultHandler faultHandler() {
        return faultHandler;
    }

    @Override
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        Map<String, Object> settings = new HashMap<>();
        config.originals().forEach((name, value) -> settings.put(name, value));
        List<String> listeners = new ArrayList<>();
        for (String listener : config.getList("listeners")) {
            listeners.add(listener.endsWith(":0") ? listener.substring(0, listener.length() - 1) + Nodes.ports(1).get(0) : listener);
        }
        settings.put("listeners", String.join(",", listeners));
        settings.put("advertised.listeners", String.join(",", listeners));
        // A node runs in another directory than this JVM.
        settings.put("log.dirs", config.logDirs().stream().map(path -> new File(path).getAbsolutePath()).collect(Collectors.joining(",")));
        Map.Entry<Integer, InetSocketAddress> voter = voters.join().entrySet().iterator().next();
        settings.put("controller.quorum.voters", voter.getKey() + "@localhost:" + voter.getValue().getPort());
        settings.remove("controller.quorum.bootstrap.servers");
        Path file = Nodes.write(Path.of(metadataDir.getAbsolutePath(), "broker-" + config.nodeId() + ".properties"), settings);
        Server server = new Server(file, new KafkaConfig(settings, false), clusterId);
        servers.add(server);
        Nodes.format(file, clusterId, "", Map.of());
        BrokerServer broker = Fakes.broker(server, new ListenerName(listeners.get(0).split("://")[0]));
        if (startup) {
            broker.startup();
        }
        return broker;
    }

    @Override
    public void shutdown() {
        servers.forEach(Server::kill);
        controllerServer.shutdown();
    }
}
