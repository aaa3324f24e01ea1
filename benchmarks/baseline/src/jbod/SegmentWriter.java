package jbod;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Appends batches of metadata records to segments, a new one when the last has grown past its size. */
final class SegmentWriter implements AutoCloseable {
    private static final int EPOCH = 1;
    private static final long FIRST_MILLISECOND = 1_700_000_000_000L;
    private static final long BETWEEN_BATCHES = 7;

    private final Path folder;
    private final long segmentBytes;
    private final List<ApiMessageAndVersion> batch = new ArrayList<>();
    private OutputStream segment;
    private long written;
    private long offset;
    private long now = FIRST_MILLISECOND;

    SegmentWriter(Path folder, long segmentBytes) throws IOException {
        this.folder = Files.createDirectories(folder);
        this.segmentBytes = segmentBytes;
    }

    /** Offset of the next batch. */
    long offset() {
        return offset;
    }

    /** Records waiting for {@link #endBatch}. */
    int waiting() {
        return batch.size();
    }

    void add(ApiMessage message, int version) {
        batch.add(new ApiMessageAndVersion(message, (short) version));
    }

    /** Write what waits as one batch; nothing if nothing waits. */
    void endBatch() throws IOException {
        if (batch.isEmpty()) {
            return;
        }
        if (segment == null || written > segmentBytes) {
            roll();
        }
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1 << 16),
            RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE, TimestampType.CREATE_TIME, offset, now,
            RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, false, EPOCH,
            Integer.MAX_VALUE);
        for (ApiMessageAndVersion record : batch) {
            builder.append(now, null, serialized(record));
        }
        MemoryRecords records = builder.build();
        ByteBuffer bytes = records.buffer();
        segment.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
        written += bytes.remaining();
        offset += batch.size();
        now += BETWEEN_BATCHES;
        batch.clear();
    }

    private static ByteBuffer serialized(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer value = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(value));
        return value.flip();
    }

    private void roll() throws IOException {
        if (segment != null) {
            segment.close();
        }
        segment = new BufferedOutputStream(Files.newOutputStream(folder.resolve(String.format("%020d.log", offset))), 1 << 20);
        written = 0;
    }

    @Override
    public void close() throws IOException {
        endBatch();
        if (segment != null) {
            segment.close();
        }
    }
}
