package kops;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;

/**
 * Starts and ends nodes of kops for Kafka's own tests. A Python process does the work: tests/support/kafka/suites/nodes.py, which also
 * describes the lines that are exchanged with it. It ends the nodes when this JVM ends.
 */
public final class Nodes {
    private static Process helper;
    private static BufferedWriter questions;
    private static BufferedReader answers;

    private Nodes() {
    }

    /** Ports on the loopback address that nothing else uses. */
    public static List<Integer> ports(int count) {
        List<Integer> ports = new ArrayList<>();
        for (String port : ask("ports", Integer.toString(count)).split(",")) {
            ports.add(Integer.parseInt(port));
        }
        return ports;
    }

    /** Writes a node's server.properties. */
    public static Path write(Path file, Map<String, ?> settings) {
        Properties properties = new Properties();
        settings.forEach((name, value) -> properties.setProperty(name, String.valueOf(value)));
        try (Writer writer = Files.newBufferedWriter(file)) {
            properties.store(writer, null);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return file;
    }

    /** Formats a node's directories. An empty release is the newest one; the levels of features are named. */
    public static void format(Path properties, String clusterId, String release, Map<String, Short> features) {
        String levels = features.entrySet().stream().map(each -> each.getKey() + "=" + each.getValue()).collect(Collectors.joining(","));
        ask("format", properties.toString(), clusterId, release, levels);
    }

    /** Starts a node without waiting. */
    public static void start(Path properties) {
        ask("start", properties.toString());
    }

    /** Waits until a node serves. */
    public static void await(Path properties) {
        ask("await", properties.toString());
    }

    /** Stops a node as an administrator does, and waits for its end. */
    public static void stop(Path properties) {
        ask("stop", properties.toString());
    }

    /** Kills a node, if it runs. */
    public static void kill(Path properties) {
        ask("kill", properties.toString());
    }

    private static synchronized String ask(String... words) {
        try {
            if (helper == null) {
                ProcessBuilder builder = new ProcessBuilder(System.getProperty("kops.helper").split("\t"));
                builder.directory(new File(System.getProperty("kops.tree")));
                builder.redirectError(ProcessBuilder.Redirect.INHERIT);
                helper = builder.start();
                questions = new BufferedWriter(new OutputStreamWriter(helper.getOutputStream(), StandardCharsets.UTF_8));
                answers = new BufferedReader(new InputStreamReader(helper.getInputStream(), StandardCharsets.UTF_8));
            }
            questions.write(String.join("\t", words));
            questions.write("\n");
            questions.flush();
            String answer = answers.readLine();
            if (answer == null) {
                throw new IllegalStateException("the helper ended at " + String.join(" ", words));
            }
            if (!answer.startsWith("ok\t")) {
                throw new IllegalStateException(String.join(" ", words) + ": " + answer.replace("\u2028", "\n"));
            }
            return answer.substring(3);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
