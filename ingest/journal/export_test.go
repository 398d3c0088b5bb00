package journal

import "os"

// Extents tells where the records of a segment file lie.
func Extents(path string) ([][2]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := reader{file: f}
	defer r.close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var out [][2]int64
	for at := int64(0); at < info.Size(); {
		_, h, err := r.load(at, info.Size())
		if err != nil {
			at++
			continue
		}
		end := at + headerSize + h.length
		out = append(out, [2]int64{at, end})
		at = end
	}
	return out, nil
}

// SetVersion makes the first record of a segment file claim another format.
func SetVersion(path string, version byte) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	h, _ := parseHeader(raw)
	payload := raw[headerSize : headerSize+h.length]
	payload[0] = version
	describePayload(raw, payload, h.rows)
	sealHeader(raw, h.appended)
	return os.WriteFile(path, raw, 0o600)
}
