package org.apache.kafka.common.test;

import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;

import kops.Fakes;
import kops.Nodes;
import kops.Server;

import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.MetadataVersion;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

/**
 * Kafka's test kit with nodes of kops: this class stands before the one of Kafka's jar on the class path, so that Kafka's own tests run
 * against kops. Each node is a process. What a test asks a server object for is answered by Fakes, or refused with an
 * UnsupportedOperationException that names what the test wanted to see.
 *
 * A combined node is one process: its controller stops with its broker.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private static final String HOST = "localhost";

    private final TestKitNodes nodes;
    private final SortedMap<Integer, Server> servers;
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final Map<Integer, ControllerServer> controllers = new TreeMap<>();
    private final boolean deleteOnClose;
    private final MockFaultHandler fatal = new MockFaultHandler("fatalFaultHandler");
    private final MockFaultHandler nonFatal = new MockFaultHandler("nonFatalFaultHandler");

    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> settings = new HashMap<>();
        private boolean deleteOnClose = true;

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            settings.put(key, value);
            return this;
        }

        public Builder setStandalone(boolean standalone) {
            if (standalone) {
                throw new UnsupportedOperationException("kops: a quorum with dynamic voters");
            }
            return this;
        }

        public Builder setInitialVoterSet(Map<Integer, Uuid> initialVoterSet) {
            throw new UnsupportedOperationException("kops: a quorum with dynamic voters");
        }

        public Builder setDeleteOnClose(boolean deleteOnClose) {
            this.deleteOnClose = deleteOnClose;
            return this;
        }

        public KafkaClusterTestKit build() throws Exception {
            if (nodes.brokerListenerProtocol() != SecurityProtocol.PLAINTEXT) {
                throw new UnsupportedOperationException("kops: a listener with " + nodes.brokerListenerProtocol());
            }
            if (settings.containsKey("listeners")) {
                throw new UnsupportedOperationException("kops: listeners of the test");
            }
            TreeSet<Integer> ids = new TreeSet<>(nodes.brokerNodes().keySet());
            ids.addAll(nodes.controllerNodes().keySet());
            List<Integer> free = new ArrayList<>(Nodes.ports(2 * ids.size()));
            SortedMap<Integer, Integer> brokerPorts = new TreeMap<>();
            SortedMap<Integer, Integer> controllerPorts = new TreeMap<>();
            nodes.brokerNodes().keySet().forEach(id -> brokerPorts.put(id, free.remove(0)));
            nodes.controllerNodes().keySet().forEach(id -> controllerPorts.put(id, free.remove(0)));
            SortedMap<Integer, Server> servers = new TreeMap<>();
            Files.createDirectories(Path.of(nodes.baseDirectory()));
            for (int id : ids) {
                Map<String, Object> config = config(id, brokerPorts, controllerPorts);
                Path file = Nodes.write(Path.of(nodes.baseDirectory(), id + ".properties"), config);
                servers.put(id, new Server(file, new KafkaConfig(config, false), nodes.clusterId()));
            }
            return new KafkaClusterTestKit(nodes, servers, deleteOnClose);
        }

        private Map<String, Object> config(int id, Map<Integer, Integer> brokerPorts, Map<Integer, Integer> controllerPorts) {
            TestKitNode broker = nodes.brokerNodes().get(id);
            TestKitNode controller = nodes.controllerNodes().get(id);
            String brokerListener = nodes.brokerListenerName().value();
            String controllerListener = nodes.controllerListenerName().value();
            List<String> roles = new ArrayList<>();
            List<String> listeners = new ArrayList<>();
            Map<String, Object> config = new HashMap<>(settings);
            if (broker != null) {
                roles.add("broker");
                listeners.add(brokerListener + "://" + HOST + ":" + brokerPorts.get(id));
                config.put("advertised.listeners", listeners.get(0));
            }
            if (controller != null) {
                roles.add("controller");
                listeners.add(controllerListener + "://" + HOST + ":" + controllerPorts.get(id));
            }
            config.put("process.roles", String.join(",", roles));
            config.put("node.id", Integer.toString(id));
            config.put("listeners", String.join(",", listeners));
            config.put("log.dirs", broker != null ? String.join(",", broker.logDataDirectories()) : controller.metadataDirectory());
            config.put("metadata.log.dir", controller != null ? controller.metadataDirectory() : broker.metadataDirectory());
            config.put("controller.quorum.voters", controllerPorts.entrySet().stream()
                .map(voter -> voter.getKey() + "@" + HOST + ":" + voter.getValue()).collect(Collectors.joining(",")));
            config.putIfAbsent("listener.security.protocol.map", brokerListener + ":PLAINTEXT," + controllerListener + ":PLAINTEXT");
            config.putIfAbsent("inter.broker.listener.name", brokerListener);
            config.putIfAbsent("controller.listener.names", controllerListener);
            config.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152");
            if (broker != null) {
                config.putAll(broker.propertyOverrides());
            }
            if (controller != null) {
                config.putAll(controller.propertyOverrides());
            }
            config.putIfAbsent("unstable.feature.versions.enable", "true");
            config.putIfAbsent("unstable.api.versions.enable", "true");
            return config;
        }
    }

    private KafkaClusterTestKit(TestKitNodes nodes, SortedMap<Integer, Server> servers, boolean deleteOnClose) {
        this.nodes = nodes;
        this.servers = servers;
        this.deleteOnClose = deleteOnClose;
        nodes.brokerNodes().keySet().forEach(id -> brokers.put(id, Fakes.broker(servers.get(id), nodes.brokerListenerName())));
        Server any = servers.get(nodes.brokerNodes().firstKey());
        nodes.controllerNodes().keySet().forEach(id -> controllers.put(id, Fakes.controller(servers.get(id), any)));
    }

    public void format() {
        MetadataVersion wanted = nodes.bootstrapMetadata().metadataVersion();
        MetadataVersion version = wanted.isAtLeast(MetadataVersion.LATEST_PRODUCTION) ? MetadataVersion.LATEST_PRODUCTION : wanted;
        Map<String, Short> features = new TreeMap<>();
        Feature.PRODUCTION_FEATURES.forEach(feature -> features.put(feature.featureName(), (short) 0));
        nodes.bootstrapMetadata().records().forEach(record -> {
            FeatureLevelRecord level = (FeatureLevelRecord) record.message();
            features.put(level.name(), level.featureLevel());
        });
        features.remove(MetadataVersion.FEATURE_NAME);
        features.remove(KRaftVersion.FEATURE_NAME);
        servers.values().forEach(server -> Nodes.format(server.file(), nodes.clusterId(), version.version(), features));
    }

    public void startup() {
        servers.values().forEach(Server::start);
        servers.values().forEach(Server::await);
    }

    public void waitForReadyBrokers() throws InterruptedException {
        TestUtils.waitForCondition(() -> brokers.values().stream().map(BrokerServer::metadataCache)
            .allMatch(cache -> brokers.keySet().stream().allMatch(cache::hasAliveBroker)), 60_000, "brokers do not know each other");
    }

    public Admin admin() {
        return admin(Map.of(), false);
    }

    public Admin admin(Map<String, Object> configs) {
        return admin(configs, false);
    }

    public Admin admin(Map<String, Object> configs, boolean usingBootstrapControllers) {
        Map<String, Object> settings = new HashMap<>(configs);
        if (usingBootstrapControllers) {
            settings.putIfAbsent(AdminClientConfig.BOOTSTRAP_CONTROLLERS_CONFIG, bootstrapControllers());
            settings.remove(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG);
        } else {
            settings.putIfAbsent(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers());
            settings.remove(AdminClientConfig.BOOTSTRAP_CONTROLLERS_CONFIG);
        }
        return Admin.create(settings);
    }

    private String addresses(Set<Integer> ids, ListenerName listener) {
        return ids.stream().map(id -> HOST + ":" + servers.get(id).port(listener)).collect(Collectors.joining(","));
    }

    public String bootstrapServers() {
        return addresses(brokers.keySet(), nodes.brokerListenerName());
    }

    public String bootstrapControllers() {
        return addresses(controllers.keySet(), nodes.controllerListenerName());
    }

    public Map<Integer, ControllerServer> controllers() {
        return controllers;
    }

    public Controller waitForActiveController() {
        throw new UnsupportedOperationException("kops: the object of the active controller");
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public Map<Integer, ?> raftManagers() {
        throw new UnsupportedOperationException("kops: the objects of the quorum");
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public MockFaultHandler fatalFaultHandler() {
        return fatal;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return nonFatal;
    }

    @Override
    public void close() throws Exception {
        servers.values().forEach(Server::kill);
        if (deleteOnClose) {
            Utils.delete(new File(nodes.baseDirectory()));
        }
    }
}
