/// An app among others: it offers services and uses those of others.
public enum ServicesPlaceholder {}
