package kops;

import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.message.DescribeQuorumResponseData.PartitionData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.DescribeQuorumRequest;
import org.apache.kafka.common.requests.DescribeQuorumResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.BrokerLifecycleManager;
import org.apache.kafka.server.IntegrationTestUtils;

import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import scala.Option;

/**
 * Objects of Kafka's server classes that stand for a node of kops. They start and stop its process and know its ports and settings. The
 * metadata cache asks the node itself. Everything else throws UnsupportedOperationException: the test looks into the broker's insides.
 */
public final class Fakes {
    static final Object REFUSED = new Object();

    private Fakes() {
    }

    public static BrokerServer broker(Server server, ListenerName listener) {
        SocketServer sockets = sockets(server);
        KRaftMetadataCache cache = cache(server);
        KafkaApis apis = fake(KafkaApis.class, call -> switch (call.getMethod().getName()) {
            case "brokerId" -> server.config.nodeId();
            case "clusterId" -> server.clusterId;
            case "metadataCache" -> cache;
            case "isConsumerGroupProtocolEnabled" -> true;
            default -> REFUSED;
        });
        MetadataLoader loader = fake(MetadataLoader.class, call -> switch (call.getMethod().getName()) {
            case "lastAppliedOffset" -> quorum(server.port(listener)).map(state -> fetched(state, server)).orElse(-1L);
            default -> REFUSED;
        });
        SharedServer shared = fake(SharedServer.class, call -> switch (call.getMethod().getName()) {
            case "loader" -> loader;
            default -> REFUSED;
        });
        GroupCoordinator groups = fake(GroupCoordinator.class, call -> switch (call.getMethod().getName()) {
            case "groupMetadataTopicConfigs" -> topicConfigs("producer", server.config.getInt("offsets.topic.segment.bytes"));
            default -> REFUSED;
        });
        LogManager logs = Logs.manager(server);
        ReplicaManager replicas = fake(ReplicaManager.class, call -> switch (call.getMethod().getName()) {
            case "onlinePartition" -> {
                TopicPartition place = call.getArgument(0);
                yield !server.isRunning() ? Option.empty() : Option.apply(partition(server, place.topic(), place.partition())
                    .filter(found -> found.replicaIds.contains(server.config.nodeId())).map(found -> replica(server, found)).orElse(null));
            }
            case "logManager" -> logs;
            case "localLog" -> Logs.find(server, call.getArgument(0));
            default -> REFUSED;
        });
        BrokerLifecycleManager lifecycle = fake(BrokerLifecycleManager.class, call -> switch (call.getMethod().getName()) {
            case "initialUnfenceFuture" -> CompletableFuture.completedFuture(null);
            default -> REFUSED;
        });
        return fake(BrokerServer.class, call -> switch (call.getMethod().getName()) {
            case "groupCoordinator" -> groups;
            case "replicaManager" -> replicas;
            case "logManager" -> logs;
            case "lifecycleManager" -> lifecycle;
            case "startup" -> started(server);
            case "shutdown" -> {
                if (server.isRunning()) {
                    server.last(metadata(server, null));
                }
                yield stopped(server);
            }
            case "awaitShutdown" -> null;
            case "isShutdown" -> !server.isRunning();
            case "brokerState" -> server.isRunning() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "config" -> server.config;
            case "clusterId" -> server.clusterId;
            case "boundPort" -> server.port(call.getArgument(0));
            case "socketServer" -> sockets;
            case "metadataCache" -> cache;
            case "dataPlaneRequestProcessor" -> apis;
            case "sharedServer" -> shared;
            default -> REFUSED;
        });
    }

    private static Partition replica(Server server, MetadataResponse.PartitionMetadata found) {
        boolean leads = found.leaderId.filter(id -> id == server.config.nodeId()).isPresent();
        return fake(Partition.class, call -> switch (call.getMethod().getName()) {
            case "leaderReplicaIdOpt" -> Option.apply(found.leaderId.orElse(null));
            case "getLeaderEpoch" -> found.leaderEpoch.orElse(-1);
            case "leaderLogIfLocal" -> leads ? Logs.find(server, found.topicPartition) : Option.empty();
            default -> REFUSED;
        });
    }

    /** The settings with which Kafka's coordinator creates its topic. */
    private static Properties topicConfigs(String compression, int segmentBytes) {
        Properties configs = new Properties();
        configs.setProperty("cleanup.policy", "compact");
        configs.setProperty("compression.type", compression);
        configs.setProperty("segment.bytes", Integer.toString(segmentBytes));
        return configs;
    }

    public static ControllerServer controller(Server server, Server broker) {
        Controller controller = fake(Controller.class, call -> switch (call.getMethod().getName()) {
            case "findAllTopicIds" -> CompletableFuture.completedFuture(metadata(broker, null).topicMetadata().stream()
                .collect(Collectors.toMap(MetadataResponse.TopicMetadata::topic, MetadataResponse.TopicMetadata::topicId)));
            default -> REFUSED;
        });
        SocketServer sockets = sockets(server);
        RaftLog log = fake(RaftLog.class, call -> switch (call.getMethod().getName()) {
            case "endOffset" -> new LogOffsetMetadata(quorum(server.port()).map(PartitionData::highWatermark).orElse(0L));
            default -> REFUSED;
        });
        KafkaRaftManager<?> raft = fake(KafkaRaftManager.class, call -> switch (call.getMethod().getName()) {
            case "raftLog" -> log;
            default -> REFUSED;
        });
        return fake(ControllerServer.class, call -> switch (call.getMethod().getName()) {
            case "startup" -> started(server);
            case "shutdown" -> stopped(server);
            case "awaitShutdown" -> null;
            case "config" -> server.config;
            case "clusterId" -> server.clusterId;
            case "socketServer" -> sockets;
            case "raftManager" -> raft;
            case "controller" -> controller;
            default -> REFUSED;
        });
    }

    private static SocketServer sockets(Server server) {
        return fake(SocketServer.class, call -> switch (call.getMethod().getName()) {
            case "config" -> server.config;
            case "boundPort" -> server.port(call.getArgument(0));
            default -> REFUSED;
        });
    }

    private static KRaftMetadataCache cache(Server server) {
        return fake(KRaftMetadataCache.class, call -> switch (call.getMethod().getName()) {
            case "hasAliveBroker" -> metadata(server, null).brokers().stream().anyMatch(node -> node.id() == (int) call.getArgument(0));
            case "getAliveBrokerNode" -> metadata(server, null).brokers().stream().filter(node -> node.id() == (int) call.getArgument(0))
                .findFirst();
            case "getAliveBrokerNodes" -> List.copyOf(metadata(server, null).brokers());
            case "numPartitions" -> topic(server, call.getArgument(0)).map(topic -> topic.partitionMetadata().size());
            case "getAllTopics" -> metadata(server, null).topicMetadata().stream()
                .map(MetadataResponse.TopicMetadata::topic).collect(Collectors.toSet());
            case "getTopicId" -> topic(server, call.getArgument(0)).map(MetadataResponse.TopicMetadata::topicId).orElse(Uuid.ZERO_UUID);
            case "contains" -> {
                Object what = call.getArgument(0);
                yield what instanceof TopicPartition place ? partition(server, place.topic(), place.partition()).isPresent()
                    : topic(server, (String) what).isPresent();
            }
            case "getLeaderAndIsr" -> partition(server, call.getArgument(0), call.getArgument(1)).map(found -> new LeaderAndIsr(
                found.leaderId.orElse(-1), found.leaderEpoch.orElse(-1), found.inSyncReplicaIds, LeaderRecoveryState.RECOVERED, 0));
            case "getPartitionLeaderEndpoint" -> partition(server, call.getArgument(0), call.getArgument(1))
                .flatMap(found -> found.leaderId).flatMap(id -> metadata(server, null).brokers().stream()
                    .filter(node -> node.id() == id).findFirst());
            default -> REFUSED;
        });
    }

    /** What a node tells about topics and brokers: all topics, or those named. A stopped node still tells what it told at its end. */
    private static MetadataResponse metadata(Server server, Set<String> topics) {
        if (!server.isRunning() && server.last() != null) {
            return server.last();
        }
        MetadataRequest.Builder request = topics == null ? MetadataRequest.Builder.allTopics()
            : new MetadataRequest.Builder(List.copyOf(topics), false);
        try {
            return IntegrationTestUtils.connectAndReceive(request.build(), server.port());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The state of the quorum as a node knows it; empty if it is not the leader and knows none. */
    private static Optional<PartitionData> quorum(int port) {
        DescribeQuorumRequest.Builder request = new DescribeQuorumRequest.Builder(
            DescribeQuorumRequest.singletonRequest(new TopicPartition("__cluster_metadata", 0)));
        try {
            DescribeQuorumResponse response = IntegrationTestUtils.connectAndReceive(request.build(), port);
            PartitionData state = response.data().topics().get(0).partitions().get(0);
            return state.errorCode() == 0 ? Optional.of(state) : Optional.empty();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The offset of the last metadata record that a node has fetched. */
    private static long fetched(PartitionData state, Server server) {
        return Stream.concat(state.currentVoters().stream(), state.observers().stream())
            .filter(replica -> replica.replicaId() == server.config.nodeId()).mapToLong(replica -> replica.logEndOffset() - 1)
            .max().orElse(-1);
    }

    private static Optional<MetadataResponse.TopicMetadata> topic(Server server, String name) {
        return metadata(server, Set.of(name)).topicMetadata().stream()
            .filter(topic -> topic.topic().equals(name) && topic.error() != Errors.UNKNOWN_TOPIC_OR_PARTITION).findFirst();
    }

    private static Optional<MetadataResponse.PartitionMetadata> partition(Server server, String name, int index) {
        return topic(server, name).flatMap(topic -> topic.partitionMetadata().stream()
            .filter(partition -> partition.partition() == index).findFirst());
    }

    static <T> T fake(Class<T> type, Function<InvocationOnMock, Object> answers) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            String name = call.getMethod().getName();
            if (name.equals("toString")) {
                return "kops's " + type.getSimpleName();
            }
            Object answer = answers.apply(call);
            if (answer == REFUSED) {
                throw new UnsupportedOperationException("kops: " + type.getSimpleName() + "." + name);
            }
            return answer;
        }));
    }

    private static Object started(Server server) {
        server.start();
        server.await();
        return null;
    }

    private static Object stopped(Server server) {
        server.stop();
        return null;
    }
}
