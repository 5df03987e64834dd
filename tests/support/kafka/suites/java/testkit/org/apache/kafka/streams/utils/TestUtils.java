package org.apache.kafka.streams.utils;

import org.junit.jupiter.api.TestInfo;

/** What the tests of Kafka's tools use of Kafka Streams' tests. Version 3.9.1, whose jar is on the class path, does not have it yet. */
public final class TestUtils {
    private TestUtils() {
    }

    /** The name of a test, as a part of the names of its topics. */
    public static String safeUniqueTestName(final TestInfo testInfo) {
        final String name = testInfo.getTestMethod().orElseThrow().getName() + testInfo.getDisplayName();
        return name.replaceAll("[^A-Za-z0-9]", "_");
    }
}
