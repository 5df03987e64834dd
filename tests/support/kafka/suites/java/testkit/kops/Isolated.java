package kops;

import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTestDefaults;
import org.apache.kafka.common.test.api.Type;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

import java.lang.reflect.Method;
import java.util.Arrays;

/**
 * Most of Kafka's tests run twice: with controllers of their own, and with nodes that are broker and controller. Unless the property
 * kops.isolated is true, the first is left out where there is the second.
 */
public class Isolated implements ExecutionCondition {
    private static final ConditionEvaluationResult RUNS = ConditionEvaluationResult.enabled("not twice");

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        if (Boolean.getBoolean("kops.isolated") || !context.getDisplayName().contains("Type=Raft-Isolated")) {
            return RUNS;
        }
        Method method = context.getRequiredTestMethod();
        ClusterTest test = method.getDeclaredAnnotation(ClusterTest.class);
        if (test == null) {
            return RUNS;
        }
        ClusterTestDefaults defaults = context.getRequiredTestClass().getDeclaredAnnotation(ClusterTestDefaults.class);
        Type[] types = test.types().length > 0 || defaults == null ? test.types() : defaults.types();
        boolean twice = types.length == 0 || Arrays.asList(types).contains(Type.CO_KRAFT);
        return twice ? ConditionEvaluationResult.disabled("runs with combined nodes, too") : RUNS;
    }
}
