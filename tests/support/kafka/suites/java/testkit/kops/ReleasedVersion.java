package kops;

import kafka.server.QuorumTestHarness;

import net.bytebuddy.ByteBuddy;
import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.dynamic.loading.ClassReloadingStrategy;
import net.bytebuddy.implementation.MethodCall;
import net.bytebuddy.matcher.ElementMatchers;

import org.apache.kafka.server.common.MetadataVersion;

import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Kafka's tests in Scala use a metadata version that no release supports. Their controller gets the released one. */
public class ReleasedVersion implements BeforeAllCallback {
    private static boolean done;

    @Override
    public void beforeAll(ExtensionContext context) throws NoSuchMethodException {
        if (!done && QuorumTestHarness.class.isAssignableFrom(context.getRequiredTestClass())) {
            done = true;
            ByteBuddyAgent.install();
            new ByteBuddy().redefine(QuorumTestHarness.class).method(ElementMatchers.named("metadataVersion"))
                .intercept(MethodCall.invoke(MetadataVersion.class.getMethod("latestProduction"))).make()
                .load(QuorumTestHarness.class.getClassLoader(), ClassReloadingStrategy.fromInstalledAgent());
        }
    }
}
