import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Commits a transaction, begins the next one at once, sends, and aborts it, again and again: the abort comes while the
 * markers of the commit are still being written.
 *
 * Arguments: bootstrap servers, transactional id, topic, rounds. What is committed in round 7 is "c7", what is aborted
 * "a7", one of each in each of the topic's partitions.
 */
public class AbortRightAfterCommit {
    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "transactional.id", arguments[1], "retry.backoff.ms", 5);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int round = 0; round < Integer.parseInt(arguments[3]); round++) {
                producer.beginTransaction();
                send(producer, arguments[2], "c" + round);
                producer.commitTransaction();
                producer.beginTransaction();
                send(producer, arguments[2], "a" + round);
                producer.abortTransaction();
            }
        }
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String value) {
        for (int partition = 0; partition < producer.partitionsFor(topic).size(); partition++) {
            producer.send(new ProducerRecord<>(topic, partition, null, value));
        }
    }
}
