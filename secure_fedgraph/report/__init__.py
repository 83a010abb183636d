"""Pages: result.json, audit.json and compare.json as one HTML file each."""
