// The services that the programs have among themselves. Both sides of a service have its definition.
public import AppKinetics

/// Lets the user choose a photo: `PhotoPicker` offers it, and `PhotoClient` asks for it.
public enum Photos {
  /// What the service takes and answers.
  public static let definition = read(
    """
    {"service-id": "com.example.photos", "version": "1.0.0.0", "methods": {
      "pick": {
        "description": "Comes to the front, and lets the user choose a photo.",
        "result-value": {"type": "null"},
        "result-attachments": {"items": [{"title": "the photo", "format": "image/jpeg"}]},
        "errors": [{"code": 1, "title": "the user has cancelled"}]}}}
    """)

  /// The code of the error when the user has cancelled.
  public static let cancelled: Int64 = 1
}

private func read(_ json: String) -> ServiceDefinition {
  do {
    return try ServiceDefinition(jsonText: json)
  } catch {
    preconditionFailure("\(error)")
  }
}
