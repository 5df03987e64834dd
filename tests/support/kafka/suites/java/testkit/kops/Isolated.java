package kops;

import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTestDefaults;
import org.apache.kafka.common.test.api.Type;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

import java.util.Arrays;
import java.util.Set;

/**
 * Most of Kafka's tests run twice: with controllers of their own, and with nodes that are broker and controller. Unless the property
 * kops.isolated is true, one is enough: nodes that are both, because it has fewer processes. A test with several brokers may stop one of
 * them and go on with its controller. A combined node of kops stops as a whole, so these tests run with controllers of their own.
 */
public class Isolated implements ExecutionCondition {
    private static final ConditionEvaluationResult RUNS = ConditionEvaluationResult.enabled("not twice");

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        ClusterTest test = context.getTestMethod().map(method -> method.getDeclaredAnnotation(ClusterTest.class)).orElse(null);
        String name = context.getDisplayName();
        if (Boolean.getBoolean("kops.isolated") || test == null || !name.contains("Type=Raft-")) {
            return RUNS;
        }
        ClusterTestDefaults defaults = context.getRequiredTestClass().getDeclaredAnnotation(ClusterTestDefaults.class);
        Set<Type> types = Set.copyOf(Arrays.asList(test.types().length > 0 || defaults == null ? test.types() : defaults.types()));
        boolean twice = types.isEmpty() || types.containsAll(Set.of(Type.KRAFT, Type.CO_KRAFT));
        int brokers = test.brokers() > 0 || defaults == null ? test.brokers() : defaults.brokers();
        boolean isolated = name.contains("Type=Raft-Isolated");
        return twice && isolated != brokers > 1 ? ConditionEvaluationResult.disabled("runs the other way, too") : RUNS;
    }
}
