package org.apache.kafka.controller;

import kafka.cluster.Partition;
import kafka.server.ReplicaAlterLogDirsThread;
import kafka.server.ReplicaManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.AbortTransactionRecord;
import org.apache.kafka.common.metadata.BeginTransactionRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.NoOpRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.LocalReplicaChanges;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.TopicsDelta;
import org.apache.kafka.image.TopicsImage;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Set$;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;

/** The shortest ways to the defects of brokers, on the classes of one release: see Defects. */
class BrokerDefects {
    private static final Uuid TOPIC = Uuid.fromString("AAAAAAAAQACAAAAAAAAAFA");
    private static final TopicPartition PARTITION = new TopicPartition("foo", 0);

    /** A replica joins an existing partition: whether its broker looks at the directory that the record has for it. */
    static String joiningReplica() throws Exception {
        TopicsDelta created = new TopicsDelta(TopicsImage.EMPTY);
        created.replay(new TopicRecord().setName("foo").setTopicId(TOPIC));
        created.replay(new PartitionRecord().setTopicId(TOPIC).setPartitionId(0).setReplicas(List.of(1)).setIsr(List.of(1))
            .setLeader(1).setDirectories(List.of(Defects.A)));
        if (created.localChanges(1).directoryIds().isEmpty()) {
            return "failed\ta new partition is not looked at either";
        }
        TopicsDelta joins = new TopicsDelta(created.apply());
        joins.replay(new PartitionChangeRecord().setTopicId(TOPIC).setPartitionId(0).setReplicas(List.of(1, 2))
            .setAddingReplicas(List.of(2)).setDirectories(List.of(Defects.A, Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAQ"))));
        LocalReplicaChanges changes = joins.localChanges(2);
        if (changes.followers().isEmpty()) {
            return "failed\tthe replica does not follow";
        }
        return (changes.directoryIds().isEmpty() ? "yes" : "no") + "\tfollows foo-0, directories to compare: " + changes.directoryIds().size();
    }

    /** A broker that starts reads all partitions as new ones. */
    static String joiningReplicaRestarts() {
        TopicsDelta all = new TopicsDelta(TopicsImage.EMPTY);
        all.replay(new TopicRecord().setName("foo").setTopicId(TOPIC));
        all.replay(new PartitionRecord().setTopicId(TOPIC).setPartitionId(0).setReplicas(List.of(1, 2)).setIsr(List.of(1, 2))
            .setLeader(1).setDirectories(List.of(Defects.A, Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAQ"))));
        int compared = all.localChanges(2).directoryIds().size();
        return (compared == 1 ? "yes" : "no") + "\tdirectories to compare when the broker starts: " + compared;
    }

    /** The broker's image after an aborted transaction, and after one that a record follows. */
    static String abortedTransaction() throws Exception {
        ApiMessage begin = new BeginTransactionRecord().setName("t");
        ApiMessage topic = new TopicRecord().setName("aborted").setTopicId(TOPIC);
        ApiMessage abort = new AbortTransactionRecord();
        if (published(begin, topic, abort)) {
            return "failed\tshown though nothing follows";
        }
        return (published(begin, topic, abort, new NoOpRecord()) ? "yes" : "no") + "\ta NoOpRecord follows the abort in the batch";
    }

    private static boolean published(ApiMessage... messages) throws Exception {
        MetadataImage[] image = {MetadataImage.EMPTY};
        Class<?> updater = Class.forName("org.apache.kafka.image.loader.MetadataBatchLoader$MetadataUpdater");
        Object update = Proxy.newProxyInstance(updater.getClassLoader(), new Class<?>[] {updater}, (proxy, method, arguments) -> {
            if (method.getName().equals("update")) {
                image[0] = (MetadataImage) arguments[1];
            }
            return null;
        });
        Constructor<?> constructor = MetadataBatchLoader.class.getConstructors()[0];
        MetadataBatchLoader loader = (MetadataBatchLoader) constructor.newInstance(Arrays.stream(constructor.getParameterTypes()).map(type ->
            type == updater ? update : type == Time.class ? Time.SYSTEM : made(type)).toArray());
        loader.resetToImage(MetadataImage.EMPTY);
        LeaderAndEpoch leader = new LeaderAndEpoch(OptionalInt.of(1), 1);
        loader.loadBatch(batch(0, new FeatureLevelRecord().setName("metadata.version").setFeatureLevel((short) 19)), leader);
        loader.loadBatch(batch(1, messages), leader);
        for (Method flush : MetadataBatchLoader.class.getMethods()) {
            if (flush.getName().equals("maybeFlushBatches")) {
                flush.invoke(loader, flush.getParameterCount() == 1 ? new Object[] {leader} : new Object[] {leader, true});
            }
        }
        if (image[0] == MetadataImage.EMPTY) {
            throw new IllegalStateException("nothing was published");
        }
        return image[0].topics().getTopic("aborted") != null;
    }

    /** What can be made without arguments, or a stand-in for it. */
    private static Object made(Class<?> type) {
        try {
            return type.getConstructor().newInstance();
        } catch (ReflectiveOperationException problem) {
            return Mockito.mock(type);
        }
    }

    private static Batch<ApiMessageAndVersion> batch(long offset, ApiMessage... messages) {
        List<ApiMessageAndVersion> records = new ArrayList<>();
        for (ApiMessage message : messages) {
            records.add(new ApiMessageAndVersion(message, (short) 0));
        }
        return Batch.data(offset, 1, 0, 1, records);
    }

    /** The controller has confirmed a move, the partition changes, and the destination dies. */
    static String forgottenMove() throws Exception {
        return move(true);
    }

    /** The report of a move waits, the partition changes, and the source dies. */
    static String moveOutlivesSource() throws Exception {
        return move(false);
    }

    private static String move(boolean confirmed) throws Exception {
        List<Uuid> undisturbed = new Move().run(confirmed, false);
        if (!undisturbed.equals(List.of(Defects.B, Defects.A))) {
            return "failed\twithout a change of the partition the broker reports " + named(undisturbed);
        }
        List<Uuid> reported = new Move().run(confirmed, true);
        return (reported.contains(Defects.A) ? "no" : "yes") + "\treported: " + named(reported) + ", without the change: " + named(undisturbed);
    }

    private static String named(List<Uuid> directories) {
        StringBuilder names = new StringBuilder();
        for (Uuid directory : directories) {
            names.append(names.length() == 0 ? "" : ", then ").append(directory.equals(Defects.A) ? "source" : "target");
        }
        return names.toString();
    }

    /** ReplicaAlterLogDirsThread with a replica that moves from A to B. */
    private static class Move {
        final List<Uuid> reported = new ArrayList<>();
        final List<Runnable> confirmations = new ArrayList<>();
        final Partition partition = Mockito.mock(Partition.class, this::answer);
        final ReplicaAlterLogDirsThread thread;

        Move() throws Exception {
            Constructor<?> constructor = ReplicaAlterLogDirsThread.class.getConstructors()[0];
            Class<?>[] types = constructor.getParameterTypes();
            Object[] arguments = new Object[types.length];
            for (int i = 0; i < types.length; i++) {
                arguments[i] = types[i] == String.class ? "mover" : types[i] == int.class ? 1
                    : types[i].getSimpleName().equals("DirectoryEventHandler") ? handler(types[i]) : Mockito.mock(types[i], this::answer);
            }
            thread = (ReplicaAlterLogDirsThread) constructor.newInstance(arguments);
        }

        /** The directories that the broker reports. */
        List<Uuid> run(boolean confirmed, boolean changes) throws Exception {
            add();
            Method promote = ReplicaAlterLogDirsThread.class.getDeclaredMethod("maybePromoteFutureReplica", TopicPartition.class, Partition.class);
            promote.setAccessible(true);
            promote.invoke(thread, PARTITION, partition);
            if (confirmed) {
                confirmations.get(0).run();
            }
            if (changes) {
                add();
            }
            thread.removePartitions((scala.collection.Set<TopicPartition>) Set$.MODULE$.<TopicPartition>empty().$plus(PARTITION));
            return reported;
        }

        /** As ReplicaManager#maybeAddLogDirFetchers does after every change of the partition. */
        private void add() throws Exception {
            Class<?> type = Class.forName("kafka.server.InitialFetchState");
            Constructor<?> constructor = type.getConstructors()[0];
            Object state = constructor.newInstance(Option.apply(TOPIC), endPoint(constructor.getParameterTypes()[1]), 0, 0L);
            Object partitions = Map$.MODULE$.empty().updated(PARTITION, state);
            ReplicaAlterLogDirsThread.class.getMethod("addPartitions", scala.collection.Map.class).invoke(thread, partitions);
        }

        private Object handler(Class<?> type) {
            return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, arguments) -> {
                if (method.getName().equals("handleAssignment")) {
                    reported.add((Uuid) arguments[1]);
                    confirmations.add((Runnable) arguments[arguments.length - 1]);
                }
                return null;
            });
        }

        private static Object endPoint(Class<?> type) throws Exception {
            return type.getConstructor(int.class, String.class, int.class).newInstance(1, "localhost", 1);
        }

        @SuppressWarnings("unchecked")
        private Object answer(InvocationOnMock asked) throws Throwable {
            Class<?> type = asked.getMethod().getReturnType();
            switch (asked.getMethod().getName()) {
                case "futureLogExists":
                    return true;
                case "getPartitionOrException":
                    return partition;
                case "topicId":
                    return Option.apply(TOPIC);
                case "logDirectoryId":
                    return Option.apply(Defects.A);
                case "futureReplicaDirectoryId":
                    return Option.apply(Defects.B);
                case "brokerEndPoint":
                    return endPoint(type);
                case "runCallbackIfFutureReplicaCaughtUp":
                    ((scala.Function1<Object, Object>) asked.getArgument(0)).apply(null);
                    return true;
                default:
                    if (type == Option.class) {
                        return Option.empty();
                    }
                    return type.getName().startsWith("kafka.") || type.getName().startsWith("org.apache.kafka.storage") ? Mockito.mock(type, this::answer)
                        : Mockito.RETURNS_DEFAULTS.answer(asked);
            }
        }
    }
}
