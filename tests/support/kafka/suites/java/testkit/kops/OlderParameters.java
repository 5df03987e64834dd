package kops;

import org.junit.jupiter.params.provider.Arguments;

import java.util.stream.Stream;

/** The parameters of tests that still name the kind of quorum before the protocol of groups. */
public final class OlderParameters {
    private static final Arguments CLASSIC = Arguments.of("kraft", "classic");
    private static final Arguments CONSUMER = Arguments.of("kraft", "consumer");

    private OlderParameters() {
    }

    public static Stream<Arguments> all() {
        return Stream.of(CLASSIC, CONSUMER);
    }

    public static Stream<Arguments> classic() {
        return Stream.of(CLASSIC);
    }

    public static Stream<Arguments> consumer() {
        return Stream.of(CONSUMER);
    }
}
