package kops;

import org.apache.kafka.test.TestUtils;

import java.util.concurrent.Future;

/** Helpers of older tests: those of this version, with the arguments of one in the older order. */
public final class OlderTestUtils extends TestUtils {
    public static <T extends Throwable> T assertFutureThrows(Future<?> future, Class<T> wanted) throws InterruptedException {
        return assertFutureThrows(wanted, future);
    }
}
