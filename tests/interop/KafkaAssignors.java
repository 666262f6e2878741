import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;

/**
 * What Apache Kafka's server-side assignors give out.
 *
 * A line of standard input is a group: "range|1:5,2:3|a;i1;1,2;1:0.2|b;-;1;" is the assignor, each topic with its
 * partitions, and each member with its instance id, its topics, and what it has. The answer is a line: each member
 * and its share, "a=1:0.1,2:0 b=1:2".
 */
public class KafkaAssignors {
    private final Map<Uuid, Integer> partitionCounts = new HashMap<>();
    private final Map<String, Optional<String>> instances = new LinkedHashMap<>();
    private final Map<String, Set<Uuid>> topics = new HashMap<>();
    private final Map<String, Map<Uuid, Set<Integer>>> owned = new HashMap<>();
    private final Set<List<Object>> taken = new HashSet<>();

    private KafkaAssignors(String[] fields) {
        for (String topic : parts(fields[1], ","))
            partitionCounts.put(id(topic.split(":")[0]), Integer.parseInt(topic.split(":")[1]));
        for (int index = 2; index < fields.length; index++) {
            String[] member = fields[index].split(";", -1);
            instances.put(member[0], member[1].equals("-") ? Optional.empty() : Optional.of(member[1]));
            Set<Uuid> subscribed = new HashSet<>();
            for (String topic : parts(member[2], ",")) subscribed.add(id(topic));
            topics.put(member[0], subscribed);
            Map<Uuid, Set<Integer>> has = new HashMap<>();
            for (String share : parts(member[3], ",")) {
                Uuid topic = id(share.split(":")[0]);
                for (String partition : share.split(":")[1].split("\\.")) {
                    has.computeIfAbsent(topic, each -> new HashSet<>()).add(Integer.parseInt(partition));
                    taken.add(List.of(topic, Integer.parseInt(partition)));
                }
            }
            owned.put(member[0], java.util.Collections.unmodifiableMap(has));
        }
    }

    public static void main(String[] arguments) {
        Scanner groups = new Scanner(System.in);
        while (groups.hasNextLine()) {
            String[] fields = groups.nextLine().split("\\|");
            ConsumerGroupPartitionAssignor assignor = fields[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
            System.out.println(new KafkaAssignors(fields).assign(assignor));
        }
    }

    private String assign(ConsumerGroupPartitionAssignor assignor) {
        SubscribedTopicDescriber describer = answering(SubscribedTopicDescriber.class, (proxy, method, arguments) ->
            method.getName().equals("numPartitions") ? (Object) partitionCounts.getOrDefault(arguments[0], -1) : Set.of());
        Map<String, MemberAssignment> found = assignor.assign(group(), describer).members();
        List<String> shares = new ArrayList<>();
        for (String member : new TreeSet<>(instances.keySet())) {
            Map<Long, String> share = new TreeMap<>();
            if (found.containsKey(member))
                found.get(member).partitions().forEach((topic, partitions) -> {
                    List<String> indexes = new TreeSet<>(partitions).stream().map(String::valueOf).toList();
                    if (!indexes.isEmpty())
                        share.put(topic.getLeastSignificantBits(), topic.getLeastSignificantBits() + ":" + String.join(".", indexes));
                });
            shares.add(member + "=" + String.join(",", share.values()));
        }
        return String.join(" ", shares);
    }

    private GroupSpec group() {
        boolean alike = new HashSet<>(topics.values()).size() == 1;
        return answering(GroupSpec.class, (proxy, method, arguments) -> switch (method.getName()) {
            case "memberIds" -> instances.keySet();
            case "subscriptionType" -> alike ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
            case "isPartitionAssigned" -> taken.contains(List.of(arguments[0], arguments[1]));
            case "isPartitionAssignable" -> true;
            case "memberSubscription" -> subscription((String) arguments[0]);
            case "memberAssignment" -> answering(MemberAssignment.class, (each, name, none) -> owned.get(arguments[0]));
            default -> throw new UnsupportedOperationException(method.getName());
        });
    }

    private MemberSubscription subscription(String member) {
        return answering(MemberSubscription.class, (proxy, method, arguments) -> switch (method.getName()) {
            case "instanceId" -> instances.get(member);
            case "subscribedTopicIds" -> topics.get(member);
            default -> Optional.empty();
        });
    }

    private static <T> T answering(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private static Uuid id(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static List<String> parts(String text, String separator) {
        return text.isEmpty() ? List.of() : List.of(text.split(separator));
    }
}
