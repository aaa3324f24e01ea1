package jbod;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Stream;

import kafka.server.metadata.KRaftMetadataCache;

import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.KRaftVersion;

/**
 * What a broker does with a metadata log, without the broker: decode every record, replay it, build the image, and ask
 * it for the offline replicas of every partition. Prints one JSON object.
 *
 * <p>Arguments: the folder of segments, or of a snapshot and segments; then "decode" to stop after decoding.
 */
public final class ReadLog {
    private static final ListenerName LISTENER = ListenerName.normalised("PLAINTEXT");

    private final MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
    private final boolean replay;
    private long records;

    private ReadLog(boolean replay) {
        this.replay = replay;
    }

    public static void main(String[] arguments) throws IOException {
        boolean decodeOnly = arguments.length > 1 && arguments[1].equals("decode");
        ReadLog reader = new ReadLog(!decodeOnly);
        long begin = System.nanoTime();
        for (Path segment : segments(Path.of(arguments[0]))) {
            reader.read(segment);
        }
        long read = System.nanoTime();
        if (decodeOnly) {
            System.out.printf(Locale.ROOT, "{\"records\": %d, \"readSeconds\": %.3f, \"totalSeconds\": %.3f, \"peakKb\": %d}%n",
                reader.records, seconds(begin, read), seconds(begin, read), peakKb());
            return;
        }
        MetadataImage image = reader.delta.apply(new MetadataProvenance(reader.records, 1, 0, true));
        long applied = System.nanoTime();
        long offline = countOffline(image);
        long end = System.nanoTime();
        System.out.printf(Locale.ROOT,
            "{\"records\": %d, \"readSeconds\": %.3f, \"imageSeconds\": %.3f, \"offlineSeconds\": %.3f, "
                + "\"totalSeconds\": %.3f, \"offlineReplicas\": %d, \"peakKb\": %d}%n",
            reader.records, seconds(begin, read), seconds(read, applied), seconds(applied, end),
            seconds(begin, end), offline, peakKb());
    }

    /** A snapshot comes before the segment that begins where it ends. */
    private static List<Path> segments(Path folder) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return files.filter(file -> file.toString().endsWith(".log") || file.toString().endsWith(".checkpoint"))
                .sorted().toList();
        }
    }

    private void read(Path segment) throws IOException {
        try (FileRecords file = FileRecords.open(segment.toFile(), false)) {
            for (RecordBatch batch : file.batches()) {
                batch.ensureValid();
                if (batch.isControlBatch()) {
                    continue;
                }
                for (Record record : batch) {
                    ApiMessageAndVersion decoded =
                        MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(record.value()), record.valueSize());
                    records++;
                    if (replay) {
                        delta.replay(decoded.message());
                    }
                }
            }
        }
    }

    private static long countOffline(MetadataImage image) {
        KRaftMetadataCache cache = new KRaftMetadataCache(0, () -> KRaftVersion.KRAFT_VERSION_0);
        cache.setImage(image);
        return cache.getAllTopics().stream()
            .flatMap(topic -> cache.getTopicMetadata(Set.of(topic), LISTENER, true, true).stream())
            .flatMap(topic -> topic.partitions().stream())
            .mapToLong(partition -> partition.offlineReplicas().size())
            .sum();
    }

    private static double seconds(long from, long to) {
        return (to - from) / 1e9;
    }

    private static long peakKb() throws IOException {
        Path status = Path.of("/proc/self/status");
        if (!Files.exists(status)) {
            return -1;
        }
        return Files.readAllLines(status).stream()
            .filter(line -> line.startsWith("VmHWM:"))
            .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")))
            .findFirst().orElse(-1);
    }
}
