package org.apache.kafka.controller;


import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData.ReassignablePartition;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData.ReassignableTopic;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AlterPartitionRequestData.BrokerState;
import org.apache.kafka.common.message.AlterPartitionRequestData.PartitionData;
import org.apache.kafka.common.message.AlterPartitionRequestData.TopicData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.CreatePartitionsRequestData.CreatePartitionsTopic;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.message.CreateTopicsResponseData;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.TopicIdPartition;

import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import static org.apache.kafka.controller.ControllerRequestContextUtil.anonymousContextFor;

/**
 * The shortest ways to the defects of docs/spec/kafka-defects.md, on the controller classes of one release.
 *
 * Prints a line "DEFECT TAB yes|no|absent TAB evidence" per defect. "absent" means that the release does not have the
 * feature that the defect needs. "DEFECT (remedy)" says whether what the page advises helps. The brokers and topics are those of Kafka's own ReplicationControlManagerTest.
 */
public class Defects {
    static final Uuid A = Uuid.fromString("AAAAAAAAQACAAAAAAAAAAQ");
    static final Uuid B = Uuid.fromString("AAAAAAAAQACAAAAAAAAAAg");
    private static final Uuid C = Uuid.fromString("AAAAAAAAQACAAAAAAAAAAw");
    private static final Uuid D = Uuid.fromString("AAAAAAAAQACAAAAAAAAABA");
    private static final Uuid E = Uuid.fromString("AAAAAAAAQACAAAAAAAAABQ");
    private static final Uuid F = Uuid.fromString("AAAAAAAAQACAAAAAAAAABg");
    private static final Uuid G = Uuid.fromString("AAAAAAAAQACAAAAAAAAABw");
    private static final Uuid H = Uuid.fromString("AAAAAAAAQACAAAAAAAAACA");
    private static final Map<Integer, List<Uuid>> DIRECTORIES = Map.of(1, List.of(A, B), 2, List.of(C, D), 3, List.of(E, F), 4, List.of(G, H));

    private final Context kafka;
    private Uuid created;

    private Defects(boolean elr) throws Exception {
        kafka = new Context(elr);
    }

    interface Scenario {
        String run() throws Exception;
    }

    public static void main(String[] arguments) {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("index-leak", () -> new Defects(true).indexLeak());
        scenarios.put("stale-eligible-leaders", () -> new Defects(true).staleEligibleLeaders());
        scenarios.put("an-empty-eligible-leader", () -> new Defects(true).emptyEligibleLeader(false));
        scenarios.put("eligible-leaders-wiped", () -> new Defects(true).eligibleLeadersWiped());
        scenarios.put("unfenced-and-failed-in-one-heartbeat", () -> new Defects(false).unfencedAndFailed());
        scenarios.put("all-directories-offline", () -> new Defects(false).allDirectoriesOffline());
        scenarios.put("cleared-eligible-leaders-stay-in-an-index", () -> new Defects(true).clearedEligibleLeaders());
        scenarios.put("a-topic-that-cannot-grow-grows", () -> new Defects(false).topicGrows());
        scenarios.put("manual-assignment-to-a-cordoned-broker", () -> new Defects(false).cordonedBroker());
        scenarios.put("a-clean-election-that-loses-data", () -> new Defects(true).cleanElection());
        scenarios.put("a-request-adds-any-number-of-partitions", () -> new Defects(false).unboundedGrowth());
        scenarios.put("a-sum-of-partitions-overflows", () -> new Defects(false).overflow());
        scenarios.put("a-fenced-last-leader", () -> new Defects(true).fencedLastLeader());
        scenarios.put("an-offline-assignment-that-elects", () -> new Defects(false).offlineAssignmentElects());
        scenarios.put("a-second-record-puts-the-old-directory-back", () -> new Defects(false).secondRecord());
        scenarios.put("a-reassignment-that-is-taken-back-never-ends", () -> new Defects(false).takenBack(false));
        scenarios.put("a-joining-replica-is-never-reported", BrokerDefects::joiningReplica);
        scenarios.put("a-move-is-forgotten", BrokerDefects::forgottenMove);
        scenarios.put("a-move-that-begins-anew-outlives-its-source", BrokerDefects::moveOutlivesSource);
        scenarios.put("aborted-transactions-in-broker-images", BrokerDefects::abortedTransaction);
        scenarios.put("stale-eligible-leaders (remedy)", () -> new Defects(true).staleEligibleLeadersCleared());
        scenarios.put("an-empty-eligible-leader (remedy)", () -> new Defects(true).emptyEligibleLeader(true));
        scenarios.put("unfenced-and-failed-in-one-heartbeat (remedy)", () -> new Defects(false).unfencedAndFailedRestarts());
        scenarios.put("an-offline-assignment-that-elects (remedy)", () -> new Defects(false).offlineAssignmentRestarts());
        scenarios.put("a-reassignment-that-is-taken-back-never-ends (remedy)", () -> new Defects(false).takenBack(true));
        scenarios.put("a-joining-replica-is-never-reported (remedy)", BrokerDefects::joiningReplicaRestarts);
        for (Map.Entry<String, Scenario> scenario : scenarios.entrySet()) {
            String seen;
            try {
                seen = scenario.getValue().run();
            } catch (Throwable problem) {
                seen = "failed\t" + (problem instanceof InvocationTargetException ? problem.getCause() : problem);
            }
            System.out.println(scenario.getKey() + "\t" + seen.replace('\n', ' '));
        }
    }

    private String indexLeak() throws Exception {
        brokers(1);
        TopicIdPartition partition = topic("foo", new int[][] {{1}}, 1);
        assign(1, partition, A);
        kafka.fenceBrokers(Set.of(1));
        if (at(partition).isr.length > 0) {
            return "absent\tthe in-sync set keeps its last replica";
        }
        kafka.deleteTopic(partition.topicId());
        kafka.unfenceBrokers(1);
        return throwing(() -> heartbeat(1, A));
    }

    private String staleEligibleLeaders() throws Exception {
        brokers(1, 2, 3, 4);
        TopicIdPartition partition = topic("foo", new int[][] {{2, 3}}, 1);
        reassign("foo", 1, 4);
        alterPartition(2, partition, 2, 3, 1);
        kafka.fenceBrokers(Set.of(2, 3));
        kafka.fenceBrokers(Set.of(1, 2, 3));
        if (at(partition).lastKnownElr.length == 0) {
            return "absent\tno last known leader is kept";
        }
        kafka.alterTopicConfig("foo", "unclean.leader.election.enable", "true");
        reassign("foo");
        PartitionRegistration back = at(partition);
        kafka.unfenceBrokers(1);
        try {
            return throwing(() -> kafka.uncleanShutdown(2)) + "; replicas " + Arrays.toString(back.replicas) + ", last known leader "
                + Arrays.toString(back.lastKnownElr);
        } catch (NoSuchMethodException problem) {
            return "absent\tthe release does not tell an unclean shutdown from a clean one";
        }
    }

    private String staleEligibleLeadersCleared() throws Exception {
        if (!staleEligibleLeaders().startsWith("yes")) {
            return "absent\tthere is nothing to mend";
        }
        kafka.setMinInsyncReplicas("foo", "1");
        String again = throwing(() -> kafka.uncleanShutdown(2));
        return (again.startsWith("no") ? "yes" : "no") + "\tafter min.insync.replicas was set again: " + again.split("\t")[1];
    }

    /** Broker 3 is drained, and stays eligible; broker 1 fails; broker 3 is added again, without a log, and broker 2 stops. */
    private String emptyEligibleLeader(boolean cleared) throws Exception {
        brokers(1, 2, 3);
        TopicIdPartition partition = topic("foo", new int[][] {{3, 2, 1}}, 3);
        reassign("foo", 2, 1);
        PartitionRegistration drained = at(partition);
        if (drained.elr.length == 0) {
            return "absent\tno broker became an eligible leader";
        }
        kafka.fenceBrokers(Set.of(1));
        reassign("foo", 3, 2, 1);
        String remedy = "";
        if (cleared) {
            kafka.setMinInsyncReplicas("foo", "3");
            remedy = "min.insync.replicas is set again, ";
        }
        kafka.fenceBrokers(Set.of(1, 2));
        PartitionRegistration now = at(partition);
        return (now.leader == 3 == cleared ? "no" : "yes") + "\treplicas " + Arrays.toString(drained.replicas) + ", ELR "
            + Arrays.toString(drained.elr) + "; broker 1 fails, broker 3 is added again, " + remedy + "broker 2 stops: leader "
            + now.leader + ", recovery " + now.leaderRecoveryState;
    }

    /** The only replica's broker is fenced, and registers after an unclean shutdown: nobody is eligible any more. */
    private String fencedLastLeader() throws Exception {
        brokers(1);
        TopicIdPartition partition = topic("foo", new int[][] {{1}}, 1);
        assign(1, partition, A);
        kafka.fenceBrokers(Set.of(1));
        PartitionRegistration fenced = at(partition);
        if (fenced.lastKnownElr.length == 0) {
            return "absent\tno last known leader is kept";
        }
        try {
            kafka.uncleanShutdown(1);
        } catch (NoSuchMethodException problem) {
            return "absent\tthe release does not tell an unclean shutdown from a clean one";
        }
        PartitionRegistration now = at(partition);
        return (now.leader == 1 ? "yes" : "no") + "\tbroker 1 is fenced; leader " + fenced.leader + " -> " + now.leader + ", ELR "
            + Arrays.toString(fenced.elr) + " -> " + Arrays.toString(now.elr);
    }

    private String eligibleLeadersWiped() throws Exception {
        brokers(1, 2, 3);
        TopicIdPartition partition = topic("foo", new int[][] {{1, 2, 3}}, 2);
        kafka.fenceBrokers(Set.of(1, 2));
        if (at(partition).elr.length == 0) {
            return "absent\tno broker became an eligible leader";
        }
        String before = Arrays.toString(at(partition).elr);
        assign(3, partition, E);
        String after = Arrays.toString(at(partition).elr);
        return (before.equals(after) ? "no" : "yes") + "\tELR " + before + " -> " + after;
    }

    private String unfencedAndFailed() throws Exception {
        brokers(1);
        TopicIdPartition partition = topic("foo", new int[][] {{1}}, 1);
        assign(1, partition, A);
        kafka.fenceBrokers(Set.of(1));
        heartbeat(1, A);
        return (at(partition).leader == 1 ? "yes" : "no") + "\tleader " + at(partition).leader + " after the heartbeat";
    }

    /** The broker restarts without the directory that it leads from. */
    private String unfencedAndFailedRestarts() throws Exception {
        if (!unfencedAndFailed().startsWith("yes")) {
            return "absent\tthere is nothing to mend";
        }
        send(new BrokerHeartbeatRequestData().setBrokerId(1).setBrokerEpoch(epoch(1)).setWantFence(true));
        restart(1, B);
        int leader = at(new TopicIdPartition(created, 0)).leader;
        return (leader == -1 ? "yes" : "no") + "\tleader 1 -> " + leader;
    }

    private void restart(int broker, Uuid... directories) throws Exception {
        kafka.registerBrokersWithDirs(broker, List.of(directories));
        kafka.unfenceBrokers(broker);
    }

    private String allDirectoriesOffline() throws Exception {
        brokers(1);
        heartbeat(1, A, B);
        List<ApiMessageAndVersion> again = heartbeat(1, A, B);
        boolean repeated = again.stream().anyMatch(one -> one.message() instanceof BrokerRegistrationChangeRecord);
        return (repeated ? "yes" : "no") + "\tthe second heartbeat wrote " + again.size() + " records";
    }

    private String clearedEligibleLeaders() throws Exception {
        brokers(1, 2, 3);
        TopicIdPartition partition = topic("foo", new int[][] {{1, 2, 3}}, 3);
        kafka.fenceBrokers(Set.of(1));
        if (at(partition).elr.length == 0) {
            return "absent\tno broker became an eligible leader";
        }
        Class<?> record;
        try {
            record = Class.forName("org.apache.kafka.common.metadata.ClearElrRecord");
        } catch (ClassNotFoundException problem) {
            return "absent\tthe release has no ClearElrRecord";
        }
        Object clear = record.getConstructor().newInstance();
        record.getMethod("setTopicName", String.class).invoke(clear, "foo");
        kafka.replicationControl.getClass().getMethod("replay", record).invoke(kafka.replicationControl, clear);
        if (at(partition).elr.length > 0) {
            return "no\tthe record cleared nothing";
        }
        Object index = kafka.replicationControl.getClass().getDeclaredMethod("brokersToElrs").invoke(kafka.replicationControl);
        java.lang.reflect.Method find = index.getClass().getDeclaredMethod("partitionsWithBrokerInElr", int.class);
        find.setAccessible(true);
        boolean stays = ((java.util.Iterator<?>) find.invoke(index, 1)).hasNext();
        return (stays ? "yes" : "no") + "\tELR [], the index of broker 1 " + (stays ? "has" : "has no") + " the partition";
    }

    private String topicGrows() throws Exception {
        brokers(1, 2, 3);
        topic("foo", new int[][] {{1}}, 1);
        kafka.inControlledShutdownBrokers(3);
        List<CreatePartitionsTopic> asked = List.of(new CreatePartitionsTopic().setName("foo").setCount(20).setAssignments(null));
        var answer = kafka.replicationControl.createPartitions(anonymousContextFor(ApiKeys.CREATE_PARTITIONS), asked);
        boolean wrote = answer.records().stream().anyMatch(one -> one.message() instanceof PartitionRecord);
        int error = answer.response().get(0).errorCode();
        return (error != 0 && wrote ? "yes" : "no") + "\terror " + error + ", " + answer.records().size() + " records";
    }

    private String cordonedBroker() throws Exception {
        brokers(1, 2);
        BrokerHeartbeatRequestData request = new BrokerHeartbeatRequestData().setBrokerId(2).setBrokerEpoch(epoch(2));
        try {
            request.getClass().getMethod("setCordonedLogDirs", List.class).invoke(request, List.of(C, D));
        } catch (NoSuchMethodException problem) {
            return "absent\tthe release does not cordon";
        }
        send(request);
        TopicIdPartition partition = topic("foo", new int[][] {{1}}, 1);
        reassign("foo", 2);
        PartitionRegistration now = at(partition);
        boolean taken = Arrays.stream(now.replicas).anyMatch(broker -> broker == 2);
        return (taken ? "yes" : "no") + "\treplicas " + Arrays.toString(now.replicas);
    }

    private String cleanElection() throws Exception {
        brokers(1, 2);
        TopicIdPartition partition = topic("foo", new int[][] {{1}}, 1);
        assign(1, partition, A);
        heartbeat(1, A);
        PartitionRegistration failed = at(partition);
        if (failed.elr.length == 0) {
            return "absent\tno broker became an eligible leader";
        }
        kafka.fenceBrokers(Set.of(1));
        kafka.registerBrokersWithDirs(1, List.of(B));
        assign(1, partition, B);
        kafka.unfenceBrokers(1);
        PartitionRegistration now = at(partition);
        boolean clean = now.leader == 1 && now.leaderRecoveryState.value() == 0;
        return (clean ? "yes" : "no") + "\tELR " + Arrays.toString(failed.elr) + ", then leader " + now.leader + ", " + now.leaderRecoveryState;
    }

    private String unboundedGrowth() throws Exception {
        brokers(1);
        topic("foo", new int[][] {{1}}, 1);
        List<CreatePartitionsTopic> asked = List.of(new CreatePartitionsTopic().setName("foo").setCount(10_050).setAssignments(null));
        try {
            var answer = kafka.replicationControl.createPartitions(anonymousContextFor(ApiKeys.CREATE_PARTITIONS), asked);
            int error = answer.response().get(0).errorCode();
            return (error == -1 && !answer.records().isEmpty() ? "yes" : "no") + "\terror " + error + ", " + answer.records().size() + " records";
        } catch (RuntimeException problem) {
            return "no\t" + problem;
        }
    }

    /** Two topics whose partitions are 2^31 in sum; a replication factor that nobody can place ends the request after. */
    private String overflow() throws Exception {
        brokers(1);
        int half = 1 << 30;
        if (!createTwo(5_001).startsWith("PolicyViolation")) {
            return "absent\tthe release has no limit";
        }
        String answer = createTwo(half);
        return (answer.startsWith("PolicyViolation") ? "no" : "yes") + "\ttwo topics of " + half + " partitions: " + answer;
    }

    private String createTwo(int partitions) throws Exception {
        CreateTopicsRequestData request = new CreateTopicsRequestData();
        for (String name : List.of("foo", "bar")) {
            request.topics().add(new CreatableTopic().setName(name).setNumPartitions(partitions).setReplicationFactor((short) 2));
        }
        try {
            return "error " + kafka.createTopics(request).topics().find("foo").errorCode() + " when they are placed";
        } catch (PolicyViolationException problem) {
            return "PolicyViolation, " + problem.getMessage();
        }
    }

    /** The replica leaves its dead directory for one that works, and is assigned to the dead one again. */
    private String offlineAssignmentElects() throws Exception {
        brokers(1);
        TopicIdPartition partition = topic("foo", new int[][] {{1}}, 1);
        assign(1, partition, A);
        heartbeat(1, A);
        assign(1, partition, B);
        int before = at(partition).leader;
        assign(1, partition, A);
        int after = at(partition).leader;
        return (before == -1 && after == 1 ? "yes" : "no") + "\tleader " + before + " -> " + after + ", directory " + named(at(partition).directories[0]);
    }

    private String offlineAssignmentRestarts() throws Exception {
        if (!offlineAssignmentElects().startsWith("yes")) {
            return "absent\tthere is nothing to mend";
        }
        TopicIdPartition partition = new TopicIdPartition(created, 0);
        kafka.fenceBrokers(Set.of(1));
        restart(1, B);
        int between = at(partition).leader;
        assign(1, partition, B);
        kafka.unfenceBrokers(1);
        return (between == -1 ? "yes" : "no") + "\tleader 1 -> " + between + " on the dead disk";
    }

    /** An unclean election of the replica that is added leaves a reassignment that the next record completes. */
    private String secondRecord() throws Exception {
        brokers(1, 2, 3);
        TopicIdPartition partition = topic("foo", new int[][] {{1, 2}}, 1);
        kafka.alterTopicConfig("foo", "unclean.leader.election.enable", "true");
        assign(1, partition, A);
        reassign("foo", 3, 1);
        kafka.fenceBrokers(Set.of(1, 2));
        kafka.unfenceBrokers(1);
        PartitionRegistration pending = at(partition);
        List<ApiMessageAndVersion> records = assign(1, partition, H);
        PartitionRegistration now = at(partition);
        Uuid directory = now.directories[find(now.replicas, 1)];
        return (directory.equals(A) ? "yes" : "no") + "\tleader " + pending.leader + ", replicas " + Arrays.toString(pending.replicas) + " -> "
            + Arrays.toString(now.replicas) + ", " + records.size() + " records, directory of broker 1: " + named(directory);
    }

    private static int find(int[] replicas, int broker) {
        return Arrays.stream(replicas).boxed().toList().indexOf(broker);
    }

    private static String named(Uuid directory) {
        return directory.equals(A) ? "A" : directory.equals(B) ? "B" : directory.equals(H) ? "a dead one" : directory.toString();
    }

    /** Registers and unfences brokers with two directories each. */
    private void brokers(Integer... ids) throws Exception {
        for (int id : ids) {
            kafka.registerBrokersWithDirs(id, DIRECTORIES.get(id));
        }
        kafka.unfenceBrokers(ids);
    }

    private TopicIdPartition topic(String name, int[][] replicas, int minInsyncReplicas) throws Exception {
        created = kafka.createTestTopic(name, replicas);
        kafka.alterTopicConfig(name, "min.insync.replicas", Integer.toString(minInsyncReplicas));
        return new TopicIdPartition(created, 0);
    }

    private PartitionRegistration at(TopicIdPartition partition) {
        return kafka.replicationControl.getPartition(partition.topicId(), partition.partitionId());
    }

    private List<ApiMessageAndVersion> assign(int broker, TopicIdPartition partition, Uuid directory) throws Exception {
        return kafka.assignReplicasToDirs(broker, Map.of(partition, directory));
    }

    /** Broker 3 is being added in place of 1; the replicas of before are the target again, or it is cancelled after that. */
    private String takenBack(boolean cancelled) throws Exception {
        brokers(1, 2, 3);
        TopicIdPartition partition = topic("foo", new int[][] {{1, 2}}, 1);
        reassign("foo", 3, 2);
        reassign("foo", 1, 2);
        boolean goesOn = at(partition).addingReplicas.length > 0;
        if (cancelled && !goesOn) {
            return "absent\tthere is nothing to mend";
        }
        if (cancelled) {
            reassign("foo");
            goesOn = at(partition).addingReplicas.length == 0 && at(partition).removingReplicas.length == 0;
        }
        PartitionRegistration now = at(partition);
        return (goesOn ? "yes" : "no") + "\treplicas " + Arrays.toString(now.replicas) + ", in sync " + Arrays.toString(now.isr)
            + ", adding " + Arrays.toString(now.addingReplicas) + ", removing " + Arrays.toString(now.removingReplicas);
    }

    private void reassign(String topic, int... targets) throws Exception {
        List<Integer> replicas = new ArrayList<>();
        for (int target : targets) {
            replicas.add(target);
        }
        kafka.replay(kafka.replicationControl.alterPartitionReassignments(new AlterPartitionReassignmentsRequestData().setTopics(List.of(
            new ReassignableTopic().setName(topic).setPartitions(List.of(new ReassignablePartition().setPartitionIndex(0).setReplicas(replicas.isEmpty() ? null : replicas)))))).records());
    }

    private void alterPartition(int leader, TopicIdPartition partition, int... isr) throws Exception {
        List<BrokerState> brokers = new ArrayList<>();
        for (int broker : isr) {
            brokers.add(new BrokerState().setBrokerId(broker).setBrokerEpoch(epoch(broker)));
        }
        AlterPartitionRequestData request = new AlterPartitionRequestData().setBrokerId(leader).setBrokerEpoch(epoch(leader)).setTopics(
            List.of(new TopicData().setTopicId(partition.topicId()).setPartitions(List.of(new PartitionData()
                .setPartitionIndex(partition.partitionId()).setLeaderEpoch(at(partition).leaderEpoch)
                .setPartitionEpoch(at(partition).partitionEpoch).setNewIsrWithEpochs(brokers)))));
        kafka.replay(kafka.replicationControl.alterPartition(
            anonymousContextFor(ApiKeys.ALTER_PARTITION, ApiKeys.ALTER_PARTITION.latestVersion()), request).records());
    }

    private long epoch(int broker) throws Exception {
        return kafka.currentBrokerEpoch(broker);
    }

    private List<ApiMessageAndVersion> heartbeat(int broker, Uuid... offline) throws Exception {
        return send(new BrokerHeartbeatRequestData().setBrokerId(broker).setBrokerEpoch(epoch(broker))
            .setCurrentMetadataOffset(Long.MAX_VALUE / 2).setOfflineLogDirs(List.of(offline)));
    }

    private List<ApiMessageAndVersion> send(BrokerHeartbeatRequestData request) throws Exception {
        List<ApiMessageAndVersion> records = kafka.replicationControl.processBrokerHeartbeat(request, 0).records();
        kafka.replay(records);
        return records;
    }

    /** The private test context of Kafka's ReplicationControlManagerTest, the same in all releases from 3.7. */
    private static class Context {
        final ReplicationControlManager replicationControl;
        private final Object context;

        Context(boolean elr) throws Exception {
            String name = "org.apache.kafka.controller.ReplicationControlManagerTest$ReplicationControlTestContext";
            Constructor<?> builder = Class.forName(name + "$Builder").getDeclaredConstructors()[0];
            builder.setAccessible(true);
            Object building = builder.newInstance(new Object[builder.getParameterCount()]);
            call(building, "setIsElrEnabled", elr);
            context = call(building, "build");
            Field field = context.getClass().getDeclaredField("replicationControl");
            field.setAccessible(true);
            replicationControl = (ReplicationControlManager) field.get(context);
        }

        void replay(List<ApiMessageAndVersion> records) throws Exception {
            call(context, "replay", records);
        }

        void fenceBrokers(Set<Integer> brokers) throws Exception {
            call(context, "fenceBrokers", brokers);
        }

        void unfenceBrokers(Integer... brokers) throws Exception {
            call(context, "unfenceBrokers", (Object) brokers);
        }

        void registerBrokersWithDirs(Object... brokersAndDirectories) throws Exception {
            call(context, "registerBrokersWithDirs", (Object) brokersAndDirectories);
        }

        Uuid createTestTopic(String name, int[][] replicas) throws Exception {
            Object created = call(context, "createTestTopic", name, replicas);
            return (Uuid) created.getClass().getMethod("topicId").invoke(created);
        }

        /** A broker registers after an unclean shutdown. The release decides what that removes it from. */
        void uncleanShutdown(int broker) throws Exception {
            Integer[] brokers = {broker};
            try {
                call(context, "handleBrokersShutdown", false, brokers);
            } catch (NoSuchMethodException newer) {
                call(context, "handleBrokersUncleanShutdown", (Object) brokers);
            }
        }

        void inControlledShutdownBrokers(Integer... brokers) throws Exception {
            call(context, "inControlledShutdownBrokers", (Object) brokers);
        }

        CreateTopicsResponseData createTopics(CreateTopicsRequestData request) throws Exception {
            Object[] arguments = {anonymousContextFor(ApiKeys.CREATE_TOPICS), request, Set.of("foo", "bar")};
            try {
                return result(call(replicationControl, "createTopics", arguments));
            } catch (NoSuchMethodException newer) {
                Object[] more = Arrays.copyOf(arguments, arguments.length + 1);
                more[arguments.length] = false;
                return result(call(replicationControl, "createTopics", more));
            }
        }

        @SuppressWarnings("unchecked")
        private static <T> T result(Object answer) {
            return ((ControllerResult<T>) answer).response();
        }

        void alterTopicConfig(String topic, String name, String value) throws Exception {
            call(context, "alterTopicConfig", topic, name, value);
        }

        /** With the records that the controller writes for it. */
        @SuppressWarnings("unchecked")
        void setMinInsyncReplicas(String topic, String value) throws Exception {
            List<ApiMessageAndVersion> records = new ArrayList<>(List.of(new ApiMessageAndVersion(new ConfigRecord()
                .setResourceType(ConfigResource.Type.TOPIC.id()).setResourceName(topic).setName("min.insync.replicas").setValue(value), (short) 0)));
            Field control = context.getClass().getDeclaredField("configurationControl");
            control.setAccessible(true);
            try {
                replay(records);
                replay((List<ApiMessageAndVersion>) call(control.get(context), "createClearElrRecordsAsNeeded", records));
            } catch (NoSuchMethodException problem) {
                // An older release clears nothing.
            }
        }

        void deleteTopic(Uuid topic) throws Exception {
            call(context, "deleteTopic", anonymousContextFor(ApiKeys.DELETE_TOPICS), topic);
        }

        long currentBrokerEpoch(int broker) throws Exception {
            return (long) call(context, "currentBrokerEpoch", broker);
        }

        @SuppressWarnings("unchecked")
        List<ApiMessageAndVersion> assignReplicasToDirs(int broker, Map<TopicIdPartition, Uuid> directories) throws Exception {
            return ((ControllerResult<Object>) call(context, "assignReplicasToDirs", broker, directories)).records();
        }

        private static Object call(Object target, String name, Object... arguments) throws Exception {
            for (Method method : target.getClass().getDeclaredMethods()) {
                Class<?>[] types = method.getParameterTypes();
                boolean fits = method.getName().equals(name) && types.length == arguments.length;
                for (int i = 0; fits && i < types.length; i++) {
                    fits = MethodType.methodType(types[i]).wrap().returnType().isInstance(arguments[i]);
                }
                if (fits) {
                    method.setAccessible(true);
                    try {
                        return method.invoke(target, arguments);
                    } catch (InvocationTargetException problem) {
                        if (problem.getCause() instanceof Exception) {
                            throw (Exception) problem.getCause();
                        }
                        throw problem;
                    }
                }
            }
            throw new NoSuchMethodException(target.getClass() + "." + name);
        }
    }

    interface Step {
        void run() throws Exception;
    }

    private static String throwing(Step step) throws Exception {
        try {
            step.run();
        } catch (RuntimeException problem) {
            return "yes\t" + problem.toString().replaceAll("Topic ID \\S+", "Topic ID ...");
        }
        return "no\tnothing was thrown";
    }
}
