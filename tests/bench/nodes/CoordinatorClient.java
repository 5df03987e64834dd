import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The client of tests.bench.nodes.coordinators: Kafka's own producer and consumer. It reads one command per line and answers each with a line of
 * numbers. It stays warm from one command to the next.
 */
public class CoordinatorClient {
    static final int RECORDS = 10;
    static final byte[] VALUE = new byte[100];
    static final Duration WAIT = Duration.ofMillis(100);
    static final long PATIENCE_NS = 120_000_000_000L;

    public static void main(String[] arguments) {
        Locale.setDefault(Locale.ROOT);
        Scanner commands = new Scanner(System.in);
        while (commands.hasNextLine()) {
            String[] words = commands.nextLine().trim().split(" ");
            try {
                System.out.println("ok " + run(words));
            } catch (Exception error) {
                System.out.println("failed " + error.toString().replace('\n', ' '));
            }
            System.out.flush();
        }
        System.exit(0);
    }

    static String run(String[] words) throws Exception {
        String servers = words[1];
        switch (words[0]) {
            case "transactions":
                return transactions(servers, words[2], words[3], Integer.parseInt(words[4]), Double.parseDouble(words[5]));
            case "join":
                return join(servers, words[2], words[3], words[4], Integer.parseInt(words[5]), Integer.parseInt(words[6]));
            case "consume":
                return consume(servers, words[2], words[3], words[4], Integer.parseInt(words[5]), Integer.parseInt(words[6]));
            case "commits":
                return commits(servers, words[2], words[3], Integer.parseInt(words[4]), Double.parseDouble(words[5]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static <T> List<T> inThreads(List<Callable<T>> tasks) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(tasks.size());
        try {
            List<T> results = new ArrayList<>();
            for (Future<T> each : threads.invokeAll(tasks)) {
                results.add(each.get());
            }
            return results;
        } finally {
            threads.shutdownNow();
        }
    }

    /** Transactions per second, and p50 and p99 of the commits in milliseconds. */
    static String transactions(String servers, String topic, String prefix, int count, double seconds) throws Exception {
        CountDownLatch ready = new CountDownLatch(count);
        List<Callable<List<Double>>> tasks = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            String id = prefix + "-" + number;
            tasks.add(() -> commitOften(servers, topic, id, seconds, ready));
        }
        List<Double> taken = new ArrayList<>();
        for (List<Double> each : inThreads(tasks)) {
            taken.addAll(each);
        }
        return taken.size() / seconds + " " + quantiles(taken);
    }

    static List<Double> commitOften(String servers, String topic, String id, double seconds, CountDownLatch ready) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("acks", "all");
        settings.put("transactional.id", id);
        settings.put("linger.ms", "0");
        List<Double> taken = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            commit(producer, topic);
            ready.countDown();
            ready.await();
            long end = System.nanoTime() + (long) (seconds * 1e9);
            while (System.nanoTime() < end) {
                taken.add(commit(producer, topic));
            }
        }
        return taken;
    }

    static double commit(KafkaProducer<byte[], byte[]> producer, String topic) {
        producer.beginTransaction();
        for (int number = 0; number < RECORDS; number++) {
            producer.send(new ProducerRecord<>(topic, 0, null, VALUE));
        }
        long started = System.nanoTime();
        // A commit waits for the records, too. But Kafka's producer (4.3.0) may send EndTxn before them if its sender thread is interrupted
        // between its look at the records and its choice of a request, and then any broker answers INVALID_TXN_STATE.
        producer.flush();
        producer.commitTransaction();
        return (System.nanoTime() - started) / 1e6;
    }

    static String quantiles(List<Double> values) {
        double[] sorted = values.stream().mapToDouble(Double::doubleValue).sorted().toArray();
        return sorted[sorted.length / 2] + " " + sorted[sorted.length * 99 / 100];
    }

    static KafkaConsumer<byte[], byte[]> consumer(String servers, String group, String protocol, Map<String, String> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Milliseconds until every member of a new group has its share of the partitions. */
    static String join(String servers, String topic, String group, String protocol, int members, int partitions) throws Exception {
        List<KafkaConsumer<byte[], byte[]>> consumers = new ArrayList<>();
        for (int number = 0; number < members; number++) {
            KafkaConsumer<byte[], byte[]> made = consumer(servers, group, protocol, Map.of());
            made.partitionsFor(topic);
            consumers.add(made);
        }
        AtomicBoolean done = new AtomicBoolean();
        AtomicInteger[] owned = new AtomicInteger[members];
        List<Callable<Double>> tasks = new ArrayList<>();
        long started = System.nanoTime();
        for (int number = 0; number < members; number++) {
            AtomicInteger own = owned[number] = new AtomicInteger();
            KafkaConsumer<byte[], byte[]> member = consumers.get(number);
            tasks.add(() -> {
                member.subscribe(List.of(topic));
                double complete = 0;
                while (!done.get()) {
                    member.poll(Duration.ofMillis(5));
                    own.set(member.assignment().size());
                    boolean isEven = Arrays.stream(owned).allMatch(each -> each.get() == partitions / members);
                    if (isEven && done.compareAndSet(false, true)) {
                        complete = (System.nanoTime() - started) / 1e6;
                    }
                    if (System.nanoTime() - started > PATIENCE_NS) {
                        throw new IllegalStateException("no assignment: " + Arrays.toString(owned));
                    }
                }
                return complete;
            });
        }
        double taken = inThreads(tasks).stream().mapToDouble(Double::doubleValue).max().getAsDouble();
        closeAll(consumers);
        return Double.toString(taken);
    }

    /**
     * Records per second from the first ones to the last, with the default automatic commits; then what the consumer says of all its
     * fetches: their number, the mean wait for one in milliseconds and the mean size of one in bytes.
     */
    static String consume(String servers, String topic, String group, String protocol, int count, int times) {
        try (KafkaConsumer<byte[], byte[]> member = consumer(servers, group, protocol, Map.of())) {
            member.subscribe(List.of(topic));
            int first = 0;
            long begun = System.nanoTime();
            while (first == 0) {
                first = member.poll(WAIT).count();
                if (System.nanoTime() - begun > PATIENCE_NS) {
                    throw new IllegalStateException("no records");
                }
            }
            long started = System.nanoTime();
            long read = 0;
            for (int time = 0; time < times; time++) {
                for (int left = count; left > 0; ) {
                    int more = member.poll(WAIT).count();
                    left -= more;
                    read += more;
                }
                member.seekToBeginning(member.assignment());
            }
            double rate = read / ((System.nanoTime() - started) / 1e9);
            return rate + " " + metric(member, "fetch-total") + " " + metric(member, "fetch-latency-avg") + " "
                    + metric(member, "fetch-size-avg");
        }
    }

    static double metric(KafkaConsumer<byte[], byte[]> member, String name) {
        return member.metrics().entrySet().stream()
                .filter(each -> each.getKey().name().equals(name) && each.getKey().tags().keySet().equals(Set.of("client-id")))
                .mapToDouble(each -> (double) each.getValue().metricValue()).findFirst().getAsDouble();
    }

    /** Commits per second of groups that commit one offset after the other, and p50 and p99 of a commit in milliseconds. */
    static String commits(String servers, String topic, String prefix, int groups, double seconds) throws Exception {
        CountDownLatch ready = new CountDownLatch(groups);
        TopicPartition partition = new TopicPartition(topic, 0);
        List<Callable<List<Double>>> tasks = new ArrayList<>();
        for (int number = 0; number < groups; number++) {
            String group = prefix + "-" + number;
            tasks.add(() -> {
                List<Double> taken = new ArrayList<>();
                try (KafkaConsumer<byte[], byte[]> member = consumer(servers, group, "classic", Map.of("enable.auto.commit", "false"))) {
                    member.assign(List.of(partition));
                    member.commitSync(Map.of(partition, new OffsetAndMetadata(0)));
                    ready.countDown();
                    ready.await();
                    long end = System.nanoTime() + (long) (seconds * 1e9);
                    for (long offset = 1, now = System.nanoTime(); now < end; offset++) {
                        long started = now;
                        member.commitSync(Map.of(partition, new OffsetAndMetadata(offset)));
                        now = System.nanoTime();
                        taken.add((now - started) / 1e6);
                    }
                }
                return taken;
            });
        }
        List<Double> taken = new ArrayList<>();
        for (List<Double> each : inThreads(tasks)) {
            taken.addAll(each);
        }
        return taken.size() / seconds + " " + quantiles(taken);
    }

    static void closeAll(List<KafkaConsumer<byte[], byte[]>> consumers) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        for (KafkaConsumer<byte[], byte[]> each : consumers) {
            threads.submit(() -> each.close());
        }
        threads.shutdown();
        threads.awaitTermination(120, java.util.concurrent.TimeUnit.SECONDS);
    }
}
