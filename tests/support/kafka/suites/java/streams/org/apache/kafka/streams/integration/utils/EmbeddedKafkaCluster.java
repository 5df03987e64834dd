package org.apache.kafka.streams.integration.utils;

import kops.Nodes;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.util.MockTime;
import org.apache.kafka.test.TestUtils;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;

/**
 * The cluster of Kafka Streams' integration tests with nodes of kops: this class stands before the one of Kafka's jar on the class path.
 * Each node is a process and a broker; node 0 is the controller, too.
 *
 * `time` is the test's clock. Nodes of kops have the machine's.
 */
public class EmbeddedKafkaCluster {
    private static final long PATIENCE_MS = 60_000;

    public final MockTime time;
    private final int count;
    private final Properties settings;
    private final List<Properties> overrides;
    private final List<Path> files = new ArrayList<>();
    private final List<Integer> ports = new ArrayList<>();
    private File directory;

    public EmbeddedKafkaCluster(final int numBrokers) {
        this(numBrokers, new Properties());
    }

    public EmbeddedKafkaCluster(final int numBrokers, final Properties brokerConfig) {
        this(numBrokers, brokerConfig, System.currentTimeMillis());
    }

    public EmbeddedKafkaCluster(final int numBrokers, final Properties brokerConfig, final long mockTimeMillisStart) {
        this(numBrokers, brokerConfig, List.of(), mockTimeMillisStart);
    }

    public EmbeddedKafkaCluster(final int numBrokers, final Properties brokerConfig, final List<Properties> brokerConfigOverrides) {
        this(numBrokers, brokerConfig, brokerConfigOverrides, System.currentTimeMillis());
    }

    public EmbeddedKafkaCluster(final int numBrokers, final Properties brokerConfig, final List<Properties> brokerConfigOverrides,
                                final long mockTimeMillisStart) {
        this(numBrokers, brokerConfig, brokerConfigOverrides, mockTimeMillisStart, System.nanoTime());
    }

    public EmbeddedKafkaCluster(final int numBrokers, final Properties brokerConfig, final List<Properties> brokerConfigOverrides,
                                final long mockTimeMillisStart, final long mockTimeNanoStart) {
        this.count = numBrokers;
        this.settings = brokerConfig;
        this.overrides = brokerConfigOverrides;
        this.time = new MockTime(mockTimeMillisStart, mockTimeNanoStart);
    }

    public void start() throws IOException {
        directory = TestUtils.tempDirectory();
        final List<Integer> free = Nodes.ports(count + 1);
        ports.addAll(free.subList(0, count));
        final String clusterId = org.apache.kafka.common.Uuid.randomUuid().toString();
        for (int id = 0; id < count; id++) {
            final Path file = Nodes.write(directory.toPath().resolve(id + ".properties"), config(id, free.get(count)));
            Nodes.format(file, clusterId, "", Map.of());
            Nodes.start(file);
            files.add(file);
        }
        files.forEach(Nodes::await);
    }

    private Map<String, Object> config(final int id, final int controllerPort) {
        final Map<String, Object> config = new HashMap<>();
        config.put("num.partitions", 1);
        config.put("auto.create.topics.enable", true);
        config.put("message.max.bytes", 1000000);
        config.put("log.cleaner.dedupe.buffer.size", 2 * 1024 * 1024);
        // The default of the tests' version. Since 4.0 it is an hour, and their records from days ahead are refused (KIP-1030).
        config.put("log.message.timestamp.after.max.ms", Long.MAX_VALUE);
        config.put("group.min.session.timeout.ms", 0);
        config.put("group.initial.rebalance.delay.ms", 0);
        config.put("offsets.topic.replication.factor", 1);
        config.put("offsets.topic.num.partitions", 5);
        config.put("transaction.state.log.num.partitions", 5);
        config.put("transaction.state.log.replication.factor", Math.min(count, 3));
        config.put("transaction.state.log.min.isr", Math.min(count, 2));
        // A test whose clock stands at 1970 writes records of that time. Nodes have the machine's clock and would delete them.
        config.put("log.retention.ms", -1);
        settings.forEach((name, value) -> config.put(name.toString(), value));
        if (overrides.size() > id) {
            overrides.get(id).forEach((name, value) -> config.put(name.toString(), value));
        }
        if (config.containsKey("listeners")) {
            throw new UnsupportedOperationException("kops: listeners of the test");
        }
        final String address = "PLAINTEXT://localhost:" + ports.get(id);
        config.put("process.roles", id == 0 ? "broker,controller" : "broker");
        config.put("node.id", id);
        config.put("listeners", id == 0 ? address + ",CONTROLLER://localhost:" + controllerPort : address);
        config.put("advertised.listeners", address);
        config.put("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT");
        config.put("controller.listener.names", "CONTROLLER");
        config.put("controller.quorum.voters", "0@localhost:" + controllerPort);
        config.put("log.dirs", new File(directory, "node-" + id).getAbsolutePath());
        return new TreeMap<>(config);
    }

    public void stop() {
        files.forEach(Nodes::kill);
        try {
            Utils.delete(directory);
        } catch (final IOException e) {
            throw new RuntimeException(e);
        }
    }

    public String zKConnectString() {
        throw new UnsupportedOperationException("kops: ZooKeeper");
    }

    public String bootstrapServers() {
        return "localhost:" + ports.get(0);
    }

    public Admin createAdminClient() {
        return admin(0);
    }

    private Admin admin(final int id) {
        return Admin.create(Map.<String, Object>of("bootstrap.servers", "localhost:" + ports.get(id)));
    }

    public void createTopics(final String... topics) throws InterruptedException {
        for (final String topic : topics) {
            createTopic(topic);
        }
    }

    public void createTopic(final String topic) throws InterruptedException {
        createTopic(topic, 1, 1, Map.of());
    }

    public void createTopic(final String topic, final int partitions) throws InterruptedException {
        createTopic(topic, partitions, 1, Map.of());
    }

    public void createTopic(final String topic, final int partitions, final int replication) throws InterruptedException {
        createTopic(topic, partitions, replication, Map.of());
    }

    public void createTopic(final String topic, final int partitions, final int replication, final Map<String, String> topicConfig)
            throws InterruptedException {
        try (Admin admin = admin(0)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) replication).configs(topicConfig))).all().get();
            TestUtils.waitForCondition(() -> {
                final TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                return description.partitions().size() == partitions
                    && description.partitions().stream().allMatch(each -> each.leader() != null && !each.leader().isEmpty());
            }, PATIENCE_MS, "no leaders of " + topic);
        } catch (final ExecutionException e) {
            throw new RuntimeException(e);
        }
    }

    public void deleteTopic(final String topic) throws InterruptedException {
        deleteTopicsAndWait(-1L, topic);
    }

    public void deleteTopicAndWait(final String topic) throws InterruptedException {
        deleteTopicsAndWait(PATIENCE_MS, topic);
    }

    public void deleteTopics(final String... topics) throws InterruptedException {
        deleteTopicsAndWait(-1L, topics);
    }

    public void deleteTopicsAndWait(final String... topics) throws InterruptedException {
        deleteTopicsAndWait(PATIENCE_MS, topics);
    }

    public void deleteTopicsAndWait(final long timeoutMs, final String... topics) throws InterruptedException {
        delete(timeoutMs, Set.of(topics));
    }

    public void deleteAllTopics() throws InterruptedException {
        deleteAllTopicsAndWait(PATIENCE_MS);
    }

    public void deleteAllTopicsAndWait(final long timeoutMs) throws InterruptedException {
        delete(timeoutMs, getAllTopicsInCluster());
    }

    private void delete(final long timeoutMs, final Set<String> topics) throws InterruptedException {
        try (Admin admin = admin(0)) {
            for (final String topic : topics) {
                try {
                    admin.deleteTopics(List.of(topic)).all().get();
                } catch (final ExecutionException e) {
                    if (!(e.getCause() instanceof UnknownTopicOrPartitionException)) {
                        throw new RuntimeException(e);
                    }
                }
            }
        }
        if (timeoutMs > 0) {
            TestUtils.waitForCondition(() -> !getAllTopicsInCluster().removeAll(topics), timeoutMs, "still there: " + topics);
        }
    }

    public void waitForRemainingTopics(final long timeoutMs, final String... topics) throws InterruptedException {
        TestUtils.waitForCondition(() -> getAllTopicsInCluster().equals(Set.of(topics)), timeoutMs, "other topics than " + Set.of(topics));
    }

    /** The settings of a topic that differ from the defaults. */
    public Properties getLogConfig(final String topic) {
        final ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin(0)) {
            final Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            final Properties properties = new Properties();
            config.entries().stream().filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                .forEach(entry -> properties.setProperty(entry.name(), entry.value()));
            return properties;
        } catch (final ExecutionException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    /** All topics, with the internal ones. */
    public Set<String> getAllTopicsInCluster() {
        try (Admin admin = admin(0)) {
            return new HashSet<>(admin.listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).names().get());
        } catch (final ExecutionException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }
}
