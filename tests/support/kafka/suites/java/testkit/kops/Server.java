package kops;

import kafka.server.KafkaConfig;

import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.requests.MetadataResponse;

import java.nio.file.Path;

/** A node of kops for the tests of one class path with Kafka's server: its settings, and whether it was started and not stopped. */
public final class Server {
    public final KafkaConfig config;
    public final String clusterId;
    private final Path file;
    private boolean running;
    private MetadataResponse last;

    /** `file` has the settings of `config`. */
    public Server(Path file, KafkaConfig config, String clusterId) {
        this.file = file;
        this.config = config;
        this.clusterId = clusterId;
    }

    /** The port of a listener. */
    public int port(ListenerName listener) {
        for (Object each : config.getList("listeners")) {
            String[] parts = each.toString().split("://");
            if (parts[0].equalsIgnoreCase(listener.value())) {
                return Integer.parseInt(parts[1].substring(parts[1].lastIndexOf(':') + 1));
            }
        }
        throw new IllegalArgumentException("no listener " + listener.value() + " in " + file);
    }

    /** The port that the node's clients use: that of its first listener. */
    public int port() {
        return port(new ListenerName(config.getList("listeners").get(0).split("://")[0]));
    }

    public synchronized void start() {
        if (!running) {
            Nodes.start(file);
            running = true;
        }
    }

    /** Waits until it serves. */
    public void await() {
        Nodes.await(file);
    }

    public synchronized void stop() {
        if (running) {
            Nodes.stop(file);
            running = false;
        }
    }

    public synchronized void kill() {
        Nodes.kill(file);
        running = false;
    }

    public synchronized boolean isRunning() {
        return running;
    }

    /** What it told about the cluster before it was stopped; null if it never was. */
    public synchronized MetadataResponse last() {
        return last;
    }

    public synchronized void last(MetadataResponse told) {
        last = told;
    }

    public Path file() {
        return file;
    }
}
