package jbod;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;

import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Writes the metadata log of a large JBOD cluster: brokers register, topics are created unassigned, every replica
 * reports its directory, then directories fail and every second one is repaired. The same arguments give the same log.
 *
 * <p>Arguments: folder, partitions, brokers, directories per broker, replicas per partition, partitions per topic,
 * bytes per segment, directory failures.
 */
public final class MakeLog {
    private static final int REGISTER_VERSION = 3;
    private static final int PARTITION_VERSION = 2;
    private static final int LARGEST_BATCH = 1000;

    private final SegmentWriter log;
    private final Random random = new Random(42);
    private final int partitions;
    private final int partitionsPerTopic;
    private final int replicasPerPartition;
    private final Uuid[][] brokerDirectories;
    private final long[] brokerEpochs;
    private final Uuid[] topicIds;
    private final int[][] replicas;
    private final Uuid[][] assigned;
    private final int[] leaderIndex;

    private MakeLog(SegmentWriter log, int partitions, int brokers, int directories, int replicasPerPartition,
                    int partitionsPerTopic) {
        this.log = log;
        this.partitions = partitions;
        this.partitionsPerTopic = partitionsPerTopic;
        this.replicasPerPartition = replicasPerPartition;
        brokerDirectories = new Uuid[brokers][directories];
        for (Uuid[] ids : brokerDirectories) {
            Arrays.setAll(ids, index -> id());
        }
        brokerEpochs = new long[brokers];
        topicIds = new Uuid[(partitions + partitionsPerTopic - 1) / partitionsPerTopic];
        replicas = new int[partitions][replicasPerPartition];
        assigned = new Uuid[partitions][replicasPerPartition];
        leaderIndex = new int[partitions];
    }

    public static void main(String[] arguments) throws IOException {
        int[] numbers = Arrays.stream(arguments, 1, 6).mapToInt(Integer::parseInt).toArray();
        int failures = Integer.parseInt(arguments[7]);
        try (SegmentWriter log = new SegmentWriter(Path.of(arguments[0]), Long.parseLong(arguments[6]))) {
            MakeLog cluster = new MakeLog(log, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]);
            log.add(new FeatureLevelRecord().setName(MetadataVersion.FEATURE_NAME)
                .setFeatureLevel(MetadataVersion.IBP_4_1_IV1.featureLevel()), 0);
            log.endBatch();
            for (int broker = 0; broker < cluster.brokerDirectories.length; broker++) {
                cluster.register(broker);
            }
            for (int topic = 0; topic < cluster.topicIds.length; topic++) {
                cluster.create(topic);
                for (int slot = 0; slot < cluster.replicasPerPartition; slot++) {
                    cluster.assign(topic, slot);
                }
            }
            for (int failure = 0; failure < failures; failure++) {
                cluster.fail(failure % 2 == 0);
            }
            log.endBatch();
            System.out.println("{\"records\": " + log.offset() + "}");
        }
    }

    private Uuid id() {
        long most = random.nextLong();
        return new Uuid(most, random.nextLong());
    }

    /** A broker starts fenced and is unfenced by the next record. */
    private void register(int broker) throws IOException {
        brokerEpochs[broker] = log.offset();
        RegisterBrokerRecord registration = new RegisterBrokerRecord()
            .setBrokerId(broker)
            .setBrokerEpoch(brokerEpochs[broker])
            .setIncarnationId(id())
            .setFenced(true)
            .setRack(null)
            .setLogDirs(Arrays.asList(brokerDirectories[broker]));
        registration.endPoints().add(new RegisterBrokerRecord.BrokerEndpoint()
            .setName("PLAINTEXT").setHost("broker-" + broker).setPort(9092).setSecurityProtocol((short) 0));
        log.add(registration, REGISTER_VERSION);
        log.endBatch();
        log.add(new BrokerRegistrationChangeRecord()
            .setBrokerId(broker).setBrokerEpoch(brokerEpochs[broker]).setFenced((byte) -1), 0);
        log.endBatch();
    }

    private int firstOf(int topic) {
        return topic * partitionsPerTopic;
    }

    private int endOf(int topic) {
        return Math.min(partitions, firstOf(topic + 1));
    }

    private void create(int topic) throws IOException {
        topicIds[topic] = id();
        log.add(new TopicRecord().setName("topic-" + topic).setTopicId(topicIds[topic]), 0);
        for (int partition = firstOf(topic); partition < endOf(topic); partition++) {
            int first = random.nextInt(brokerDirectories.length);
            for (int slot = 0; slot < replicasPerPartition; slot++) {
                replicas[partition][slot] = (first + slot) % brokerDirectories.length;
            }
            Arrays.fill(assigned[partition], DirectoryId.UNASSIGNED);
            List<Integer> everyone = Arrays.stream(replicas[partition]).boxed().toList();
            log.add(new PartitionRecord()
                .setTopicId(topicIds[topic])
                .setPartitionId(partition - firstOf(topic))
                .setReplicas(everyone)
                .setIsr(everyone)
                .setLeader(first)
                .setLeaderEpoch(0)
                .setPartitionEpoch(0)
                .setDirectories(Arrays.asList(assigned[partition].clone())), PARTITION_VERSION);
        }
        log.endBatch();
    }

    /** The brokers of one slot report where they put the topic's replicas. */
    private void assign(int topic, int slot) throws IOException {
        for (int partition = firstOf(topic); partition < endOf(topic); partition++) {
            Uuid[] choice = brokerDirectories[replicas[partition][slot]];
            assigned[partition][slot] = choice[random.nextInt(choice.length)];
            log.add(change(partition).setDirectories(Arrays.asList(assigned[partition].clone())), PARTITION_VERSION);
        }
        log.endBatch();
    }

    private PartitionChangeRecord change(int partition) {
        int topic = partition / partitionsPerTopic;
        return new PartitionChangeRecord().setTopicId(topicIds[topic]).setPartitionId(partition - firstOf(topic));
    }

    /** A directory fails: its replicas leave their in-sync sets, the next replica leads where one led. */
    private void fail(boolean repaired) throws IOException {
        int broker = random.nextInt(brokerDirectories.length);
        int failed = random.nextInt(brokerDirectories[broker].length);
        Uuid directory = brokerDirectories[broker][failed];
        for (int partition = 0; partition < partitions; partition++) {
            for (int slot = 0; slot < replicasPerPartition; slot++) {
                if (replicas[partition][slot] == broker && assigned[partition][slot].equals(directory)) {
                    leave(partition, slot);
                }
            }
        }
        List<Uuid> left = new ArrayList<>(Arrays.asList(brokerDirectories[broker]));
        left.remove(failed);
        log.add(new BrokerRegistrationChangeRecord()
            .setBrokerId(broker).setBrokerEpoch(brokerEpochs[broker]).setLogDirs(left), 2);
        log.endBatch();
        if (repaired) {
            register(broker);
        }
    }

    private void leave(int partition, int slot) throws IOException {
        List<Integer> others = new ArrayList<>(Arrays.stream(replicas[partition]).boxed().toList());
        others.removeAll(Collections.singleton(replicas[partition][slot]));
        PartitionChangeRecord change = change(partition).setIsr(others);
        if (leaderIndex[partition] == slot) {
            leaderIndex[partition] = (slot + 1) % replicasPerPartition;
            change.setLeader(replicas[partition][leaderIndex[partition]]);
        }
        log.add(change, PARTITION_VERSION);
        if (log.waiting() >= LARGEST_BATCH) {
            log.endBatch();
        }
    }
}
