package kops;

import kafka.log.LogManager;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.DescribeLogDirsRequestData;
import org.apache.kafka.common.message.DescribeLogDirsResponseData.DescribeLogDirsResult;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.message.ListOffsetsResponseData.ListOffsetsPartitionResponse;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.DescribeLogDirsRequest;
import org.apache.kafka.common.requests.DescribeLogDirsResponse;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** The logs of a node of kops. The node says which it has, where they are, and where they begin and end; it is asked at each call. */
final class Logs {
    private Logs() {
    }

    static LogManager manager(Server server) {
        return Fakes.fake(LogManager.class, call -> switch (call.getMethod().getName()) {
            case "getLog" -> find(server, call.getArgument(0));
            case "getLog$default$2" -> false;
            case "liveLogDirs" -> CollectionConverters.asScala(server.config.logDirs().stream().map(File::new).toList());
            case "isLogDirOnline" -> directories(server).stream()
                .anyMatch(found -> found.logDir().equals(call.getArgument(0)) && found.errorCode() == Errors.NONE.code());
            default -> Fakes.REFUSED;
        });
    }

    /** The log of a partition that the node has, other than one that it fills in another directory. */
    static Option<UnifiedLog> find(Server server, TopicPartition place) {
        return Option.apply(folder(server, place) == null ? null : Fakes.fake(UnifiedLog.class, call -> switch (call.getMethod().getName()) {
            case "topicPartition" -> place;
            case "dir" -> folder(server, place);
            case "numberOfSegments" -> folder(server, place).list((at, name) -> name.endsWith(".log")).length;
            case "logStartOffset" -> offset(server, place, ListOffsetsRequest.EARLIEST_TIMESTAMP);
            case "logEndOffset" -> offset(server, place, ListOffsetsRequest.LATEST_TIMESTAMP);
            default -> Fakes.REFUSED;
        }));
    }

    private static File folder(Server server, TopicPartition place) {
        return directories(server).stream().filter(found -> found.topics().stream().anyMatch(topic -> topic.name().equals(place.topic())
            && topic.partitions().stream().anyMatch(each -> each.partitionIndex() == place.partition() && !each.isFutureKey())))
            .map(found -> new File(found.logDir(), place.toString())).findFirst().orElse(null);
    }

    private static List<DescribeLogDirsResult> directories(Server server) {
        DescribeLogDirsRequestData everything = new DescribeLogDirsRequestData().setTopics(null);
        try {
            DescribeLogDirsResponse response = IntegrationTestUtils.connectAndReceive(
                new DescribeLogDirsRequest.Builder(everything).build(), server.port());
            return response.data().results();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Where the node's copy begins or ends, also past the high watermark. Followers answer this to a debugging replica only. */
    private static long offset(Server server, TopicPartition place, long which) {
        ListOffsetsPartition wanted = new ListOffsetsPartition().setPartitionIndex(place.partition()).setTimestamp(which)
            .setCurrentLeaderEpoch(-1);
        ListOffsetsTopic topic = new ListOffsetsTopic().setName(place.topic()).setPartitions(List.of(wanted));
        try {
            ListOffsetsResponse response = IntegrationTestUtils.connectAndReceive(
                ListOffsetsRequest.Builder.forReplica(ApiKeys.LIST_OFFSETS.latestVersion(), ListOffsetsRequest.DEBUGGING_REPLICA_ID)
                    .setTargetTimes(List.of(topic)).build(), server.port());
            ListOffsetsPartitionResponse found = response.topics().get(0).partitions().get(0);
            Errors.forCode(found.errorCode()).maybeThrow();
            return found.offset();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
